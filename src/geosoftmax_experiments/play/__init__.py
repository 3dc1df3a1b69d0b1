"""``geosoftmax play``: a page of one's own machine on which one plays with the link function.

`fields`, `ordinal` and `simplex` compute what a tab shows, from plain values to HTML, and know
nothing of gradio; `page` puts them together, `serve` opens the page on 127.0.0.1.
"""

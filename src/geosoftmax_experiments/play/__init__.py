"""``geosoftmax play``: a page, on one's own machine, on which to play with the link function.

`fields`, `keypoints`, `ordinal` and `simplex` compute what a tab shows, from plain values to HTML.
`page` lists the tabs and their controls, `serve` answers a browser on 127.0.0.1. There is no
framework: the page is a file each of HTML, CSS and JavaScript, and is up before torch is imported.
"""

"""The application of geosoftmax: experiments, figures and the command line."""

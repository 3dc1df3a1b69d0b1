"""Point emitters in camera images: a geometric softmax off the grid."""

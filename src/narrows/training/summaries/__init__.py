"""Training of summarisers: long documents in, short texts out; and of span corruption before it."""

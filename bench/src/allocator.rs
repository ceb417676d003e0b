//! What the program allocates.

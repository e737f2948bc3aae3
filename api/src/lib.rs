//! Stead.

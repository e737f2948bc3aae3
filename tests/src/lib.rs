//! Whole processes through their public faces.

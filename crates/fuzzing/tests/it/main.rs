//! The fuzz targets with all inputs that are kept.

mod hostile_blocks;
mod replay;

//! Runs the fuzz targets on all stored inputs.

mod hostile_blocks;
mod replay;

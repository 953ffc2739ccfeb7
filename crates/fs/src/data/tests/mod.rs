//! Tests of the data room over an engine.

mod model;

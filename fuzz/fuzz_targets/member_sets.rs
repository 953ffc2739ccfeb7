#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| creamery_fuzzing::member_sets(data));

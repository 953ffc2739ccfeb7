use creamery_testkit::harness::Case;
pub(crate) fn cases() -> Vec<Case> {
    vec![]
}

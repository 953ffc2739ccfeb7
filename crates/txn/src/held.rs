//! Whether this thread has a handle.

use std::cell::Cell;

use creamery_base::sync::thread_local;

thread_local! {
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Checks that this thread has no handle. `rule` is the panic message.
pub(crate) fn assert_none(rule: &str) {
    assert!(!HELD.with(Cell::get), "{rule}");
}

/// Sets whether this thread has a handle.
pub(crate) fn set_held(held: bool) {
    HELD.with(|now| now.set(held));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "RECLAIM-2")]
    fn who_holds_a_handle_must_not_wait_for_it() {
        assert_none("nothing is held");
        set_held(true);
        assert_none("RECLAIM-2: nobody who holds a handle reclaims");
    }
}

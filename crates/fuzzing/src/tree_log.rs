//! Invalid logs with right checksums: each is refused or replayed, and no code panics either way.

use std::sync::Arc;

use creamery_sim::SimDevice;

use crate::base::base_with_log;
use crate::image_fields::Damage;
use crate::input::Input;
use crate::readers::{checked, read_everything, write_something};

const CHANGES_MAX: usize = 8;

/// Changes fields of a small filesystem's log as the input says, reads all of it, and opens it for writing, which replays the log.
///
/// ```
/// creamery_fuzzing::tree_log(b"\x00");
/// ```
pub fn tree_log(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let mut damage = Damage::new(base_with_log());
    for _ in 0..CHANGES_MAX {
        if input.is_empty() {
            break;
        }
        damage.change(&mut input);
    }
    let device = Arc::new(SimDevice::new(damage.image(how & 2 == 0)));
    if how & 4 != 0 {
        read_everything(&device);
    }
    write_something(&device);
    let _ = checked(&device);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::assert_clean;

    #[test]
    fn a_log_that_does_not_lie_is_replayed() {
        let device = base_with_log().device();
        let waits = |device| !checked(device).expect("it opens").findings.is_empty();
        assert!(waits(&device), "there is no log");
        write_something(&device);
        assert!(!waits(&device), "it is there still");
        assert_clean(&device);
    }
}

//! Random bytes in an image, as a failing disk or a careless program leaves them: checksums do not match afterwards.

use creamery_sim::{Image, SimDevice};

use crate::base::{Base, base};
use crate::input::Input;
use crate::readers::{read_everything, write_something};

const PATCHES_MAX: usize = 32;

/// Damages a small filesystem as the input says, and reads all of it; or takes the input itself as a filesystem.
///
/// ```
/// creamery_fuzzing::image_bytes(b"");
/// ```
pub fn image_bytes(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let device = std::sync::Arc::new(SimDevice::new(if how & 4 == 0 {
        patched(base(usize::from(how & 1)), &mut input, how)
    } else {
        whole(input.rest(), how)
    }));
    read_everything(&device);
    if how & 2 != 0 {
        write_something(&device);
    }
}

/// The input from the first superblock on: the rest of a device of 1 MiB is zeros.
fn whole(bytes: &[u8], how: u8) -> Image {
    let mut image = Image::new(1 << 20);
    let at = if how & 8 == 0 { 64 << 10 } else { 0 };
    image.write(at, &bytes[..bytes.len().min(512 << 10)]);
    image
}

fn patched(base: &Base, input: &mut Input<'_>, how: u8) -> Image {
    let mut image = base.image.clone();
    for _ in 0..PATCHES_MAX {
        if input.is_empty() {
            break;
        }
        let (which, at, len) = (input.byte(), input.half(), usize::from(input.byte() % 64) + 1);
        let at = u64::from(at % 4096);
        let bytes = input.take(len);
        let device_end = image.len();
        let superblock = which < 16;
        let places: Vec<u64> = match superblock {
            true => base.superblocks.clone(),
            false => base.blocks[usize::from(which - 16) % base.blocks.len()].copies.clone(),
        };
        // One copy or all of them.
        let places = if how & 16 == 0 { &places[..] } else { &places[..1] };
        for &place in places {
            let left = device_end.saturating_sub(place + at);
            let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            image.write(place + at, &bytes[..len]);
        }
    }
    image
}

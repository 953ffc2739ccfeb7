//! `creamery fallocate`.

use creamery::extents::Fallocate;
use creamery::{Error, Filesystem, OpenOptions};

use crate::args::FallocateArgs;
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::new_file::or_remove;
use crate::path_in_image::PathInImage;

impl FallocateArgs {
    fn mode(&self) -> Fallocate {
        match (self.punch_hole, self.zero_range) {
            (true, _) => Fallocate::PunchHole,
            (_, true) => Fallocate::ZeroRange { keep_size: self.keep_size },
            _ => Fallocate::Allocate { keep_size: self.keep_size },
        }
    }
}

pub(crate) fn run(args: &FallocateArgs) -> Result<(), Failure> {
    let mut images = Images::to_write("fallocate", &args.write);
    let place = PathInImage::parse(&args.place);
    let failed = images.failed(&place.image);
    let outcome = images
        .open(&place.image, Purpose::Write)
        .and_then(|fs| or_remove(fs, &place.path, || change(fs, &place, args)).map_err(failed));
    images.finish(outcome)
}

fn change(fs: &Filesystem, place: &PathInImage, args: &FallocateArgs) -> Result<(), Error> {
    let mode = args.mode();
    let creates = mode == Fallocate::Allocate { keep_size: false };
    let file = OpenOptions::new().write(true).create(creates).open(fs, &place.path)?;
    let changed = file.fallocate(mode, args.offset.0, args.length.0);
    changed.map_err(|error| error.context(format!("{}", place.path.display())))
}

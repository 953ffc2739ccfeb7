//! `creamery mkdir` and `creamery rm`.

use creamery::{ErrorKind, Permissions};

use crate::args::{MkdirArgs, RmArgs};
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::path_in_image::PathInImage;

pub(crate) fn mkdir(args: &MkdirArgs) -> Result<(), Failure> {
    let mut images = Images::to_write("mkdir", &args.write);
    let outcome = make_all(args, &mut images);
    images.finish(outcome)
}

fn make_all(args: &MkdirArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    with_all(&args.places, |text| {
        let place = PathInImage::parse(text);
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        let made = match args.mode {
            None if args.parents => fs.create_dir_all(&place.path),
            None => fs.create_dir(&place.path),
            Some(_) if args.parents && fs.metadata(&place.path).is_ok_and(|meta| meta.is_dir()) => Ok(()),
            Some(mode) => {
                // A final "." is left out of the new path.
                let path = place.path.components().as_path();
                if let (true, Some(parent)) = (args.parents, path.parent()) {
                    fs.create_dir_all(parent).map_err(&failed)?;
                }
                fs.create_dir_mode(path, Permissions::from_mode(mode))
            }
        };
        made.map_err(&failed)
    })
}

pub(crate) fn rm(args: &RmArgs) -> Result<(), Failure> {
    let mut images = Images::to_write("rm", &args.write);
    let outcome = remove_all(args, &mut images);
    images.finish(outcome)
}

fn remove_all(args: &RmArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    with_all(&args.places, |text| {
        let place = PathInImage::parse(text);
        // A missing image is an error, with -f, too.
        images.open(&place.image, Purpose::Write)?;
        match images.expand(&place, Purpose::Write) {
            Ok(places) => remove(args, images, &places),
            Err(failure) if args.force && failure.kind() == ErrorKind::NotFound => Ok(()),
            Err(failure) => Err(failure),
        }
    })
}

fn remove(args: &RmArgs, images: &mut Images<'_>, places: &[PathInImage]) -> Result<(), Failure> {
    with_all(places, |place| {
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        let is_not_there =
            |error: &creamery::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        let meta = match fs.symlink_metadata(&place.path) {
            Err(error) if args.force && is_not_there(&error) => return Ok(()),
            meta => meta.map_err(&failed)?,
        };
        let removed = if meta.is_dir() && args.recursive {
            fs.remove_dir_all(&place.path)
        } else {
            fs.remove_file(&place.path)
        };
        removed.map_err(&failed)
    })
}

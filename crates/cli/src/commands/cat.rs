//! `creamery cat`.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use creamery::progress::Lost;
use creamery::{Error, File};

use crate::args::CatArgs;
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::losses::{Losses, Site};
use crate::output::{Output, writing};
use crate::path_in_image::PathInImage;

pub(crate) fn run(args: &CatArgs) -> Result<(), Failure> {
    let mut images = Images::new("cat", &args.view);
    let mut out = Output::new();
    let mut losses = Losses::new("cat");
    let lost = args.ignore_errors.then_some(&losses);
    let outcome =
        with_all(&args.places, |text| cat_all(&mut images, &PathInImage::parse(text), &mut out, lost));
    images.note_in(&mut losses);
    losses.end(out.finish().map_err(|error| Failure::new("cat", error)).and(outcome))
}

/// Writes all files that a place with a pattern matches.
pub(super) fn cat_all(
    images: &mut Images<'_>,
    place: &PathInImage,
    out: &mut Output,
    losses: Option<&Losses>,
) -> Result<(), Failure> {
    let places = images.expand(place, Purpose::Read)?;
    with_all(&places, |place| cat(images, place, out, losses))
}

/// Writes one file.
fn cat(
    images: &mut Images<'_>,
    place: &PathInImage,
    out: &mut Output,
    losses: Option<&Losses>,
) -> Result<(), Failure> {
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    if let Some(losses) = losses {
        let file = fs.open_past_damage(&place.path).map_err(&failed)?;
        return past_damage(&file, place, out, losses).map_err(failed);
    }
    let file = fs.open(&place.path).map_err(&failed)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let in_file = |error: Error| failed(error.context(place.path.display()));
        let count = file.read_at(&mut buffer, at).map_err(in_file)?;
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
        let written = out.write_all(&buffer[..count]);
        written.map_err(writing).map_err(|error| Failure::new(images.command(), error))?;
    }
}

/// Writes a damaged file as far as it can be read, with zeros for the rest.
fn past_damage(file: &File, place: &PathInImage, out: &mut Output, losses: &Losses) -> Result<(), Error> {
    let image = place.image.display().to_string();
    let lost = |bytes: Range<u64>, error: &Error| {
        let site = Site::in_image(&image, place.path.as_os_str().as_bytes());
        losses.tell(&site, Lost::Bytes(bytes), error);
    };
    let mut written = 0;
    file.read_past_damage(lost, |at, bytes| {
        zeros(out, at - written)?;
        written = at + bytes.len() as u64;
        out.write_all(bytes).map_err(writing)
    })?;
    zeros(out, file.metadata()?.len().saturating_sub(written))
}

fn zeros(out: &mut Output, count: u64) -> Result<(), Error> {
    std::io::copy(&mut std::io::repeat(0).take(count), out).map(drop).map_err(writing)
}

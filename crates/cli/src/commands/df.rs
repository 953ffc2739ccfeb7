//! `creamery df`.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery::Error;
use creamery_mount::LiveBtrfs;
use serde::Serialize;

use crate::args::DfArgs;
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::live::live_btrfs;
use crate::output::{Output, writing};
use crate::path_in_image::PathInImage;
use crate::size::Human;

#[derive(Serialize)]
struct DfRow {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_bytes: Option<String>,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_bytes: Option<String>,
    size: u64,
    used: u64,
    available: u64,
}

impl DfRow {
    /// The space of the image or mount that `text` names. A mounted image is asked through its mount.
    fn of(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        let of_mount = |images: &mut Images<'_>, point: &Path| {
            Self::of_named(images, point.as_os_str()).map(|row| row.called(&PathInImage::parse(text).image))
        };
        images.image_or_mount(text, |images| Self::of_named(images, text), of_mount)
    }

    fn of_named(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        // A file on a mount is no image, and `place` gives that error.
        if let Some(live) = live_btrfs("df", text)?.filter(|live| live.path().is_dir()) {
            return Self::of_mount(&live).map_err(|error| Failure::new("df", error));
        }
        let place = images.place(text)?;
        let fs = images.open_at(&place, Purpose::Read)?;
        let usage = fs.volume().usage();
        Ok(Self::new(&place.image, &fs.volume().label(), [usage.total, usage.free, usage.available]))
    }

    fn of_mount(live: &LiveBtrfs) -> Result<Self, Error> {
        live.check_directory()?;
        let usage = live.usage()?;
        Ok(Self::new(live.path(), &live.label()?, [usage.total, usage.free, usage.available]))
    }

    fn new(place: &Path, label: &[u8], [size, free, available]: [u64; 3]) -> Self {
        let (label, label_bytes) = text_of(label);
        let used = size.saturating_sub(free);
        let (image, image_bytes) = (String::new(), None);
        Self { image, image_bytes, label, label_bytes, size, used, available }.called(place)
    }

    fn called(self, place: &Path) -> Self {
        let (image, image_bytes) = text_of(place.as_os_str().as_bytes());
        Self { image, image_bytes, ..self }
    }
}

pub(crate) fn run(args: &DfArgs) -> Result<(), Failure> {
    let view = args.rescue.view();
    let mut images = Images::new("df", &view);
    let mut rows = Vec::new();
    let outcome = with_all(&args.places, |text| {
        rows.push(DfRow::of(&mut images, text)?);
        Ok(())
    });
    if rows.is_empty() {
        return outcome;
    }
    let mut out = Output::new();
    let print =
        |out: &mut Output| if args.json { as_json(out, &rows) } else { as_table(out, &rows, args.raw) };
    let printed = print(&mut out).map_err(writing).and_then(|()| out.finish());
    printed.map_err(|error| Failure::new("df", error)).and(outcome)
}

fn as_json(out: &mut Output, rows: &[DfRow]) -> std::io::Result<()> {
    let mut array = Array::begin(out)?;
    rows.iter().try_for_each(|row| array.push(row))?;
    array.end()
}

fn as_table(out: &mut Output, rows: &[DfRow], raw: bool) -> std::io::Result<()> {
    let size = |bytes: u64| if raw { bytes.to_string() } else { Human(bytes).to_string() };
    writeln!(out, "{:>12} {:>12} {:>12} {:>5}  Image", "Size", "Used", "Available", "Use")?;
    for row in rows {
        let percent = (u128::from(row.used) * 100).div_ceil(u128::from(row.size.max(1)));
        let (total, used, available) = (size(row.size), size(row.used), size(row.available));
        writeln!(out, "{total:>12} {used:>12} {available:>12} {percent:>4}%  {}", row.image)?;
    }
    Ok(())
}

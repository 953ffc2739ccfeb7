//! `creamery df`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use crate::args::DfArgs;
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::output::{Output, writing};
use crate::place::Place;
use crate::size::Human;

#[derive(Serialize)]
struct Row {
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

pub(crate) fn run(args: &DfArgs) -> Result<(), Failure> {
    let view = args.rescue.view();
    let mut images = Images::new("df", &view);
    let mut rows = Vec::new();
    let outcome = with_all(&args.images, |text| {
        let place = Place::parse(text);
        let fs = images.open_at(&place, Purpose::Read)?;
        let usage = fs.usage();
        let (image, image_bytes) = text_of(place.image.as_os_str().as_bytes());
        let (label, label_bytes) = text_of(&fs.label());
        rows.push(Row {
            image,
            image_bytes,
            label,
            label_bytes,
            size: usage.total,
            used: usage.total.saturating_sub(usage.free),
            available: usage.available,
        });
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

fn as_json(out: &mut Output, rows: &[Row]) -> std::io::Result<()> {
    let mut array = Array::begin(out)?;
    rows.iter().try_for_each(|row| array.push(row))?;
    array.end()
}

fn as_table(out: &mut Output, rows: &[Row], raw: bool) -> std::io::Result<()> {
    let size = |bytes: u64| if raw { bytes.to_string() } else { Human(bytes).to_string() };
    writeln!(out, "{:>12} {:>12} {:>12} {:>5}  Image", "Size", "Used", "Available", "Use")?;
    for row in rows {
        let percent = (u128::from(row.used) * 100).div_ceil(u128::from(row.size.max(1)));
        let (total, used, available) = (size(row.size), size(row.used), size(row.available));
        writeln!(out, "{total:>12} {used:>12} {available:>12} {percent:>4}%  {}", row.image)?;
    }
    Ok(())
}

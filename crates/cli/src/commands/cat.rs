//! `creamery cat`.

use std::ffi::OsStr;
use std::io::Write;

use crate::args::CatArgs;
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::output::{Output, writing};
use crate::place::Place;

pub(crate) fn run(args: &CatArgs) -> Result<(), Failure> {
    let mut images = Images::new("cat", &args.view);
    let mut out = Output::new();
    let outcome = with_all(&args.places, |text| cat(&mut images, text, &mut out));
    out.finish().map_err(|error| Failure::new("cat", error)).and(outcome)
}

fn cat(images: &mut Images<'_>, text: &OsStr, out: &mut Output) -> Result<(), Failure> {
    let place = Place::parse(text);
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let file = fs.open(&place.path).map_err(&failed)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let in_file = |error: creamery::Error| failed(error.context(place.path.display()));
        let count = file.read_at(&mut buffer, at).map_err(in_file)?;
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
        let written = out.write_all(&buffer[..count]);
        written.map_err(writing).map_err(|error| Failure::new("cat", error))?;
    }
}

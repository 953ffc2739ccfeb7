//! `creamery device survey`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::Image;
use creamery::id::{DevId, TreeId};
use creamery::volume::{Loss, Survey};
use serde::Serialize;

use crate::columns::{self, Column};
use crate::failure::Failure;
use crate::images::warn_of;
use crate::json::text_of;
use crate::output::{Output, writing};
use crate::view::RescueArgs;

/// Show which files the loss of further devices would take.
///
/// One line for nothing more, for each device that is there, and, up to ten devices, for each
/// two of them: how many files would lose data. If metadata would be lost, so are all files.
/// Devices may be missing already; nothing is written.
///
/// Examples:
///   creamery device survey a.img b.img c.img
///   creamery device survey --files a.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SurveyArgs {
    /// The image or device, and others of its devices, if they are not found beside it.
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,

    /// Name each file that some loss would take, with those that would.
    #[arg(long)]
    files: bool,

    /// One JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

const COMMAND: &str = "device survey";

#[derive(Serialize)]
struct SurveyJson {
    files: u64,
    losses: Vec<SurveyLossJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<SurveyFileJson>>,
}

#[derive(Serialize)]
struct SurveyLossJson {
    devices: Vec<u64>,
    trees: bool,
    files: u64,
}

#[derive(Serialize)]
struct SurveyFileJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    /// For each loss that affects it, the lost devices.
    with: Vec<Vec<u64>>,
}

pub(crate) fn run(args: &SurveyArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let Some((image, others)) = args.images.split_first() else { return Ok(()) };
    let options = Image::options().rescue(args.rescue.all()).subvolume_id(TreeId::FS);
    let fs = options.open(args.rescue.set.of(image).devices(others).degraded()).map_err(failed)?;
    fs.volume().notes().iter().for_each(|note| warn_of(image, note));
    let paths: BTreeMap<DevId, PathBuf> =
        fs.volume().devices().into_iter().filter_map(|device| Some((device.id, device.path?))).collect();
    let mut out = Output::new();
    let (mut lost, mut printed) = (Vec::new(), Ok(()));
    let survey = fs.volume().survey(|path, losses| {
        if !args.files || losses.is_empty() || printed.is_err() {
            return;
        }
        match args.json {
            true => lost.push(of_file(path, losses)),
            false => printed = told_file(&mut out, path, losses),
        }
    });
    let survey = survey.map_err(failed)?;
    let printed = printed.and_then(|()| match args.json {
        true => as_json(&mut out, &survey, args.files.then_some(lost)),
        false => as_table(&mut out, &survey, &paths),
    });
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)
}

fn numbers(loss: &Loss) -> Vec<u64> {
    loss.devices.iter().map(|device| device.get()).collect()
}

fn of_file(path: &Path, losses: &[&Loss]) -> SurveyFileJson {
    let (path, path_bytes) = text_of(path.as_os_str().as_encoded_bytes());
    SurveyFileJson { path, path_bytes, with: losses.iter().map(|loss| numbers(loss)).collect() }
}

/// The devices of a loss in words.
fn named(loss: &Loss) -> String {
    let devices: Vec<String> = loss.devices.iter().map(DevId::to_string).collect();
    match &devices[..] {
        [] => "nothing more".to_owned(),
        [one] => format!("device {one}"),
        _ => format!("devices {}", devices.join(" and ")),
    }
}

fn told_file(out: &mut Output, path: &Path, losses: &[&Loss]) -> io::Result<()> {
    out.path(path)?;
    let with: Vec<String> = losses.iter().map(|loss| named(loss)).collect();
    writeln!(out, ": lost with {}", with.join(", "))
}

fn as_table(out: &mut Output, survey: &Survey, paths: &BTreeMap<DevId, PathBuf>) -> io::Result<()> {
    let column = |head: &str, is_text, cell: &dyn Fn(&Loss) -> String| Column {
        heads: vec![head.to_owned()],
        cells: survey.losses.iter().map(cell).collect(),
        is_text,
    };
    let path = |loss: &Loss| match &loss.devices[..] {
        [one] => paths.get(one).map_or_else(String::new, |path| path.display().to_string()),
        _ => String::new(),
    };
    let columns = [
        column("Lost with", true, &named),
        column("Files", false, &|loss| loss.files.to_string()),
        column("Of", false, &|_| survey.files.to_string()),
        column("Metadata", true, &|loss| if loss.trees { "lost" } else { "whole" }.to_owned()),
        column("Path", true, &path),
    ];
    columns::print(out, &columns, None)
}

fn as_json(out: &mut Output, survey: &Survey, lost: Option<Vec<SurveyFileJson>>) -> io::Result<()> {
    let loss = |loss: &Loss| SurveyLossJson { devices: numbers(loss), trees: loss.trees, files: loss.files };
    let losses = survey.losses.iter().map(loss).collect();
    serde_json::to_writer_pretty(&mut *out, &SurveyJson { files: survey.files, losses, lost })?;
    writeln!(out)
}

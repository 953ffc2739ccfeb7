//! Valid sets: the check and the scrub find nothing, nothing is written, and files are unchanged.

use anyhow::{Result, ensure};
use creamery::Image;
use creamery_check::{CheckOptions, NoProgress, check};
use creamery_testkit::harness::Case;
use creamery_volume::{Mode, Volume};

use crate::content::{Content, files_of};
use crate::damage::scrub;
use crate::geometry::PROFILES;
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("scrub-matrix/what-is-whole-stays-as-it-is", &[], |_| whole())]
}

fn whole() -> Result<()> {
    let content = Content::small(16 << 10)?;
    for profile in PROFILES {
        for (members, shift) in
            profile.members.into_iter().flat_map(|members| [(members, 0), (members, 8192), (members, 4096)])
        {
            let world = ScrubWorld::new(
                content.clone(),
                SetLayout { profile, members, shift, ends: DataGroupEnd::InFreeSpace },
            )?;
            judge(&world).map_err(|error| error.context(format!("{:?}", world.shape)))?;
        }
    }
    Ok(())
}

pub(crate) fn judge(world: &ScrubWorld) -> Result<()> {
    let set = world.set.fork();
    let volume =
        Volume::open(set.devices().into_iter().collect::<creamery_volume::DeviceSet>(), Mode::ReadOnly)?;
    let options = CheckOptions { check_data_csum: true, check_parity: true, ..CheckOptions::default() };
    let report = check(&volume, &options, &NoProgress)?;
    ensure!(report.findings.is_empty(), "the check finds {:#?}", report.findings);
    drop(volume);
    let files = files_of(&Image::options().open_devices(set.devices())?)?;
    for (path, content) in &world.content.files {
        ensure!(files[path].as_ref() == Some(content), "{}", path.display());
    }
    let report = scrub(&set)?;
    ensure!(report.counts().errors() == 0 && report.damages.is_empty(), "{:#?}", report.damages);
    ensure!(set.writes().is_empty(), "nothing is written");
    ensure!(
        (report.counts().parity_bytes_scrubbed > 0) == (world.shape.profile.parity > 0),
        "{:?}",
        report.counts()
    );
    Ok(())
}

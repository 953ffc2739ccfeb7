use std::sync::Arc;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let device = creamery_device::FileDevice::open(std::path::Path::new(&args[1]), creamery_device::Access::ReadWrite).unwrap();
    let volume = creamery_volume::Volume::open(vec![Arc::new(device)], creamery_volume::Mode::ReadWrite).unwrap();
    let engine = creamery_txn::Engine::open(volume, Default::default()).unwrap();
    let fs = creamery_fs::Filesystem::open(engine, Default::default()).unwrap();
    let options = creamery_mount::Options::parse(&args[1], ["allow_other,dev,suid"]).unwrap();
    let mounted = creamery_mount::mount(fs, args[2].as_ref(), &options).unwrap();
    println!("mounted");
    mounted.serve().unwrap();
}

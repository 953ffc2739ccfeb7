//! Devices: the storage below a filesystem. Image files and block devices of the host need nothing of this module; it is for storage of
//! your own.
//!
//! [`StreamDevice`] makes a device of everything that reads, writes and seeks, and [`MemoryDevice`] is a device in memory. Storage that can
//! do several things at once implements [`BlockDevice`]: `submit` starts a [`Request`] and calls the [`Completion`] when it is done; `len`,
//! `id` and `describe` describe the device. The rules:
//! - A request beyond the end fails and changes nothing.
//! - A flush makes the requests completed before it durable. After a failed flush every later one fails.
//! - After `close` the device touches nothing any more.
//!
//! # Examples
//! ```
//! use std::sync::Arc;
//! use creamery::Image;
//! use creamery::device::MemoryDevice;
//! let memory = Arc::new(MemoryDevice::new(256 << 20));
//! Image::make_on(Arc::clone(&memory) as _).label("in memory").run()?;
//!
//! let fs = Image::options().write().open_device(Arc::clone(&memory) as _)?;
//! fs.write("/hello", "world")?;
//! fs.close()?;
//!
//! let fs = Image::options().open_device(memory)?;
//! assert_eq!(fs.read_to_string("/hello")?, "world");
//! # Ok::<(), creamery::Error>(())
//! ```
//!
//! The caller gets a stream back when nothing uses the device any more:
//! ```
//! use std::io::Cursor;
//! use std::sync::Arc;
//! use creamery::Image;
//! use creamery::device::StreamDevice;
//! let device = Arc::new(StreamDevice::new(Cursor::new(vec![0; 128 << 20]), "a vector")?);
//! Image::make_on(Arc::clone(&device) as _).run()?;
//! let image: Vec<u8> = Arc::into_inner(device).expect("nobody else has it").into_inner().into_inner();
//! assert_eq!(&image[65536 + 64..65536 + 72], b"_BHRfS_M");
//! # Ok::<(), creamery::Error>(())
//! ```

pub mod direct;

pub use creamery_device::{
    Access, AlignedBuffer, BlockDevice, Completion, DelayedDevice, DeviceId, DeviceIo, DirectRequests,
    FileDevice, MemoryDevice, Parts, Pending, Reply, Request, SharedBytes, StreamDevice, wait_for_users,
};

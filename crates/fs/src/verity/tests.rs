//! Files that are sealed by hand: their reads, and the refused operations.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Wait};
use creamery_codec::{CompressionMethod, CompressionType, VerityHash};
use creamery_device::AlignedBuffer;
use creamery_format::{Key, KeyType, RawVerityDescriptor, RawVerityDescriptorItem, VerityDescriptor};
use creamery_txn::ReserveItems;
use zerocopy::{FromBytes, IntoBytes};

use super::remove_stale;
use crate::compression::Compress;
use crate::data::tests::support::{
    Fixture, Kind, Random, SECTOR, fixture, has, new_file_with, opened, run, set_flags,
};
use crate::inode::{Inode, InodeFlags};
use crate::open_file::OpenFile;
use crate::operation::in_handle;
use crate::ops::{SetAttributes, set_attributes};
use crate::options::FsOptions;
use crate::subvolume::orphan_item;
use crate::{DirectRequest, Fallocate, Refusal, keys};

/// Bytes of a descriptor or a tree that stand in one item, as Linux cuts them.
const PIECE: usize = 2048;

/// The parameters of a seal.
#[derive(Clone, Copy, Debug)]
struct Sealing {
    hash: VerityHash,
    log_block: u8,
    salt: &'static [u8],
}

const USUAL: Sealing = Sealing { hash: VerityHash::Sha256, log_block: 12, salt: b"" };
const SEALINGS: [Sealing; 4] = [
    USUAL,
    Sealing { hash: VerityHash::Sha512, log_block: 12, salt: &[0, 0x11, 0x22, 0x33] },
    Sealing { hash: VerityHash::Sha512, log_block: 10, salt: &[0xab; 32] },
    Sealing { hash: VerityHash::Sha256, log_block: 16, salt: &[7] },
];

/// The Merkle tree of `content`, and its descriptor.
fn sealed(content: &[u8], how: Sealing) -> (Vec<u8>, Vec<u8>) {
    let block = 1 << how.log_block;
    let mut raw = RawVerityDescriptor {
        version: 1,
        hash_algorithm: how.hash.to_disk(),
        log_blocksize: how.log_block,
        salt_size: u8::try_from(how.salt.len()).expect("short"),
        data_size: (content.len() as u64).into(),
        ..RawVerityDescriptor::default()
    };
    raw.salt[..how.salt.len()].copy_from_slice(how.salt);
    let hash = VerityDescriptor::parse(raw.as_bytes()).expect("valid").salted_hash();
    let digests = |level: &[u8]| -> Vec<u8> {
        level.chunks(block).flat_map(|chunk| hash.digest(chunk, block).as_bytes().to_vec()).collect()
    };
    let (mut tree, mut level) = (Vec::new(), digests(content));
    while level.len() > how.hash.digest_len() {
        level.resize(level.len().next_multiple_of(block), 0);
        tree.splice(0..0, level.iter().copied());
        level = digests(&level);
    }
    raw.root_hash[..level.len()].copy_from_slice(&level);
    (tree, raw.as_bytes().to_vec())
}

/// Puts both into items beside those of the file, in pieces of so many bytes, and sets the file's flag.
fn store(inode: &Inode, tree: &[u8], descriptor: &[u8], piece: usize) {
    let ino = inode.id.ino;
    let about = RawVerityDescriptorItem { size: (descriptor.len() as u64).into(), ..Default::default() };
    let mut items = vec![(Key::new(ino, KeyType::VERITY_DESC_ITEM, 0), about.as_bytes().to_vec())];
    let sides = [(KeyType::VERITY_DESC_ITEM, 1, descriptor), (KeyType::VERITY_MERKLE_ITEM, 0, tree)];
    for (kind, from, bytes) in sides {
        let keys = (from..).step_by(piece).map(|at| Key::new(ino, kind, at));
        items.extend(keys.zip(bytes.chunks(piece).map(<[u8]>::to_vec)));
    }
    for (key, bytes) in items {
        in_handle(inode.engine(), ReserveItems::items(1), |handle| inode.tree().insert(handle, &key, &bytes))
            .expect("room");
    }
    set_flags(inode, InodeFlags::VERITY);
}

/// A file with these bytes in the tree.
fn file(fixture: &Fixture, ino: u64, content: &[u8], compress: bool) -> Arc<Inode> {
    let mut options = FsOptions { delayed_bytes: 0, ..FsOptions::default() };
    if compress {
        let method = CompressionMethod::new(CompressionType::Zlib);
        options.compress = Some(Compress { method, force: true });
    }
    fill(Arc::new(new_file_with(&fixture.engine, ino, InodeFlags::default(), &options)), content)
}

fn fill(inode: Arc<Inode>, content: &[u8]) -> Arc<Inode> {
    let file = opened(Arc::clone(&inode));
    // Runs of zeros become holes.
    let size = content.len() as u64;
    set_attributes(file.inode(), &SetAttributes { size: Some(size), ..SetAttributes::default() })
        .expect("room");
    for (at, piece) in (0..).step_by(64 << 10).zip(content.chunks(64 << 10)) {
        if piece.iter().any(|byte| *byte != 0) {
            assert_eq!(file.write_at(at, piece).expect("room"), piece.len());
        }
    }
    inode
}

fn read(file: &OpenFile, at: usize, len: usize) -> Result<Vec<u8>, Error> {
    let mut out = vec![0xee; len];
    let read = file.read_at(at as u64, &mut out, Wait::Yes);
    // A direct read gives equal results, and no byte of a changed block.
    let direct = file.read_direct(at as u64, AlignedBuffer::zeroed(len));
    match (&read, &direct.outcome) {
        (Ok(read), Ok(part)) => assert!(out[..*read] == direct.buffer[..part.len]),
        (Err(read), Err(error)) => {
            assert_eq!(read.kind(), error.kind());
            assert!(direct.buffer.iter().all(|byte| *byte == 0));
        }
        (read, direct) => panic!("{read:?}, and directly {direct:?}"),
    }
    out.truncate(read?);
    Ok(out)
}

/// The bytes of the known answers.
fn counted(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 7 + at / 251) % 256) as u8).collect()
}

/// Answers of `fsverity digest` 1.5.
#[test]
fn digests_are_those_of_fsverity() {
    let rows = [
        (0, ["3d248ca542a24fc6", "4d1b755aff5f69e9", "321f7e74f67a945f"]),
        (1, ["b803429503d95915", "b3fff5e8b4612b24", "ff48275edca2014d"]),
        (4095, ["841acbc4d3c22ad5", "abe4f52480227c42", "1be6130816a66659"]),
        (4096, ["2b41866549a2f4f4", "a9bea88e4b9bf468", "ecbc4ed24c9b1b5b"]),
        (4097, ["2492558cab5973a8", "954ea3ceedbc2e11", "51e8dd633b53e6aa"]),
        (600_000, ["a3402d0343cd8b81", "bb85f40e09aa6821", "611b368a4340d5c5"]),
    ];
    for (len, wants) in rows {
        for (how, want) in SEALINGS.into_iter().zip(wants) {
            let (_, descriptor) = sealed(&counted(len), how);
            let digest = VerityDescriptor::parse(&descriptor).expect("valid").digest().to_string();
            assert!(digest.starts_with(want), "{len} bytes, {how:?}: {digest}, want {want}");
        }
    }
}

/// Trees and descriptors, byte for byte.
#[test]
fn trees_are_those_of_fsverity() {
    if !has(&["fsverity"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain name").to_owned();
    for (len, how) in
        [0, 1, 5000, 130 * 4096, 3_000_000].into_iter().flat_map(|len| SEALINGS.map(|how| (len, how)))
    {
        std::fs::write(path("file"), counted(len)).expect("room");
        let salt: String = how.salt.iter().map(|byte| format!("{byte:02x}")).collect();
        let args = [
            "digest".to_owned(),
            "--compact".to_owned(),
            format!("--hash-alg={}", how.hash),
            format!("--block-size={}", 1 << how.log_block),
            format!("--salt={salt}"),
            format!("--out-merkle-tree={}", path("tree")),
            format!("--out-descriptor={}", path("descriptor")),
            path("file"),
        ];
        let printed = run("fsverity", &args.each_ref().map(String::as_str));
        let (tree, descriptor) = sealed(&counted(len), how);
        let digest = VerityDescriptor::parse(&descriptor).expect("valid").digest();
        assert_eq!(printed.trim(), digest.to_string(), "{len} bytes, {how:?}");
        let of_fsverity = ["tree", "descriptor"].map(|name| std::fs::read(path(name)).expect("it was made"));
        assert!(of_fsverity == [tree, descriptor], "{len} bytes, {how:?}");
    }
}

/// A read that must not wait does not begin: digests would be read from the tree for it.
fn comes_back(file: &OpenFile, len: usize) {
    let request = DirectRequest::Read { offset: 0, buffer: AlignedBuffer::zeroed(4096) };
    match file.try_submit_direct(request, Box::new(|_| ())) {
        Ok(()) => assert_eq!(len, 0, "nothing of an empty file is held against anything"),
        Err(refused) => assert_eq!((refused.why, len > 0), (Refusal::Sealed, true)),
    }
}

#[test]
fn what_was_sealed_is_read_as_it_is() {
    for (kind, compress) in [(Kind::DEFAULT, false), (Kind::OLD, true)] {
        let Some(fixture) = fixture(kind) else { return };
        let mut random = Random(7);
        let sizes = [0, 1, 1000, 4096, 5000, 70_000, 700_001];
        for (number, (len, how)) in
            sizes.into_iter().flat_map(|len| SEALINGS.map(|how| (len, how))).enumerate()
        {
            let mut content = counted(len);
            content.iter_mut().skip(65_536).take(131_072).for_each(|byte| *byte = 0);
            let inode = file(&fixture, 300 + number as u64, &content, compress);
            let (tree, descriptor) = sealed(&content, how);
            store(&inode, &tree, &descriptor, [PIECE, 777][number % 2]);
            let file = opened(inode);
            let info = file.verity().expect("whole").expect("sealed");
            assert_eq!(info.digest, VerityDescriptor::parse(&descriptor).expect("valid").digest());
            assert!(read(&file, 0, len + 10).expect("whole") == content, "{len} bytes, {how:?}");
            comes_back(&file, len);
            for _ in 0..20 {
                let at = random.below(len as u64 + 10) as usize;
                let want = content.get(at..).unwrap_or_default();
                let want = &want[..want.len().min(random.below(100_000) as usize)];
                let found = read(&file, at, want.len()).expect("whole");
                assert!(found == want, "{len} bytes, {how:?}: {} from {at}", want.len());
            }
        }
    }
}

#[test]
fn a_changed_byte_anywhere_is_an_error_and_the_rest_is_read() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    // In the tree, in data, in a hole, and in the last block of the file.
    let rows = [(1000, 999), (200_000, 0), (200_000, 70_000), (200_000, 199_999), (4096, 4095)];
    for (number, (len, changed)) in rows.into_iter().enumerate() {
        for (step, how) in SEALINGS.into_iter().enumerate() {
            let mut content = counted(len);
            content.iter_mut().skip(65_536).take(65_536).for_each(|byte| *byte = 0);
            let ino = 300 + (number * SEALINGS.len() + step) as u64;
            let inode = file(&fixture, ino, &content, false);
            let id = inode.id;
            content[changed] ^= 0x10;
            let (tree, descriptor) = sealed(&content, how);
            store(&inode, &tree, &descriptor, PIECE);
            let file = opened(inode);
            let block = 1_usize << how.log_block;
            let bad = changed - changed % block;
            for at in (0..len).step_by(1024) {
                let found = read(&file, at, 1024);
                if (bad..bad + block).contains(&at) {
                    let error = found.expect_err("VERITY-1");
                    assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
                    let text = error.to_string();
                    for word in
                        [format!("inode {id}"), format!("offset {bad} "), format!("expected {}:", how.hash)]
                    {
                        assert!(text.contains(&word), "{word} is not in {text}");
                    }
                } else {
                    assert!(found.expect("whole") == content[at..len.min(at + 1024)], "{how:?}: {at}");
                }
            }
            assert!(read(&file, 0, len).is_err(), "{how:?}: {changed} of {len}");
        }
    }
}

#[test]
fn a_changed_tree_or_descriptor_is_an_error() {
    let content = counted(2_300_000);
    // Digests of both levels of three, of which only some are on the way to the read block; the padding of the descriptor.
    for damage in
        ["root", "middle", "leaf", "descriptor", "size", "gone: about", "gone: descriptor", "gone: leaf"]
    {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let how = Sealing { log_block: 10, ..USUAL };
        let inode = file(&fixture, 300, &content, false);
        let (tree, mut descriptor) = sealed(&content, how);
        assert_eq!(VerityDescriptor::parse(&descriptor).expect("valid").tree().level_count(), 3);
        let mut bad = tree.clone();
        match damage {
            "root" => bad[0] ^= 1,
            "middle" => bad[1024] ^= 1,
            "leaf" => bad[4096] ^= 1,
            "descriptor" => descriptor[16] ^= 1,
            "size" => descriptor[8] ^= 1,
            _ => {}
        }
        store(&inode, &bad, &descriptor, PIECE);
        let gone = match damage {
            "gone: about" => Some(Key::new(inode.id.ino, KeyType::VERITY_DESC_ITEM, 0)),
            "gone: descriptor" => Some(Key::new(inode.id.ino, KeyType::VERITY_DESC_ITEM, 1)),
            "gone: leaf" => Some(Key::new(inode.id.ino, KeyType::VERITY_MERKLE_ITEM, 4096)),
            _ => None,
        };
        if let Some(key) = gone {
            in_handle(&fixture.engine, ReserveItems::items(1), |handle| inode.tree().remove(handle, &key))
                .expect("an item");
        }
        let file = opened(Arc::clone(&inode));
        for _ in 0..2 {
            let error = read(&file, 100, 10).expect_err("VERITY-2");
            assert_eq!(error.kind(), ErrorKind::Unreadable, "{damage}: {error}");
        }
        // The rest of the tree is good.
        let last = content.len() - 100;
        let is_read = matches!(damage, "middle" | "leaf" | "gone: leaf");
        assert_eq!(read(&file, last, 100).is_ok(), is_read, "{damage}");
        let is_known = !matches!(damage, "size" | "gone: about" | "gone: descriptor");
        assert_eq!(file.verity().is_ok(), is_known, "{damage}");
        // Kept blocks were verified: after a repair they are read.
        let mended =
            Key::new(inode.id.ino, KeyType::VERITY_MERKLE_ITEM, if damage == "leaf" { 4096 } else { 0 });
        if matches!(damage, "root" | "middle" | "leaf") {
            let from = usize::try_from(mended.offset).expect("small");
            in_handle(&fixture.engine, ReserveItems::items(1), |handle| {
                inode.tree().upsert(handle, &mended, &tree[from..from + PIECE])
            })
            .expect("an item");
            assert!(read(&file, 100, 10).expect("whole") == content[100..110], "{damage}");
        }
    }
}

#[test]
fn hostile_items_are_errors() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let content = counted(5000);
    let (tree, descriptor) = sealed(&content, USUAL);
    let inode = file(&fixture, 300, &content, false);
    store(&inode, &tree, &descriptor, PIECE);
    let mut random = Random(3);
    let about = Key::new(inode.id.ino, KeyType::VERITY_DESC_ITEM, 0);
    for round in 0..400 {
        let (key, mut bytes) = match round % 2 {
            0 => (
                about,
                RawVerityDescriptorItem { size: 256.into(), ..Default::default() }.as_bytes().to_vec(),
            ),
            _ => (Key { offset: 1, ..about }, descriptor.clone()),
        };
        let at = random.below(bytes.len() as u64) as usize;
        let byte = bytes[at];
        bytes[at] = random.next() as u8;
        if round % 5 == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        let put = |bytes: &[u8]| {
            in_handle(&fixture.engine, ReserveItems::items(1), |handle| {
                inode.tree().upsert(handle, &key, bytes)
            })
            .expect("an item");
        };
        put(&bytes);
        // Another object, with nothing kept.
        let item = inode.item(Wait::Yes).expect("it lives");
        let again = crate::data::tests::support::stored(&fixture.engine, 300, item);
        match read(&opened(Arc::new(again)), 0, 5000) {
            Ok(found) => assert!(found == content, "{key} byte {at}: {byte} to {}", bytes[at]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}"),
        }
        let good = match key.offset {
            0 => RawVerityDescriptorItem { size: 256.into(), ..Default::default() }.as_bytes().to_vec(),
            _ => descriptor.clone(),
        };
        put(&good);
    }
    RawVerityDescriptor::ref_from_bytes(&descriptor[..]).expect("as long as that");
}

#[test]
fn data_that_was_sealed_cannot_be_changed() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let content = counted(20_000);
    let [inode, other] = ["f0", "f1"].map(|name| fill(Arc::new(fixture.named(name)), &content));
    let (tree, descriptor) = sealed(&content, USUAL);
    store(&inode, &tree, &descriptor, PIECE);
    let (sealed, other) = (opened(Arc::clone(&inode)), opened(other));
    let size = |size| set_attributes(&inode, &SetAttributes { size: Some(size), ..SetAttributes::default() });
    let keep_size = true;
    let refusals = [
        ("write", sealed.write_at(0, b"x").map(drop)),
        ("append", sealed.append(b"x").map(drop)),
        ("append at the end", sealed.append_at(20_000, b"x").map(drop)),
        ("cut", size(10).map(drop)),
        ("cut to what it is", size(20_000).map(drop)),
        ("grow", size(30_000).map(drop)),
        ("allocate", sealed.fallocate(Fallocate::Allocate { keep_size }, 0, 4096)),
        ("punch", sealed.fallocate(Fallocate::PunchHole, 0, 4096)),
        ("zero", sealed.fallocate(Fallocate::ZeroRange { keep_size }, 0, 4096)),
        ("clone over it", sealed.clone_range(&other, 0, SECTOR, 0)),
        ("share with it", sealed.share_range(&other, 0, SECTOR, 0).map(drop)),
    ];
    for (what, refused) in refusals {
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::PermissionDenied), "{what}");
    }
    // Cloning from it, and operations that change no data.
    other.clone_range(&sealed, 0, SECTOR, SECTOR).expect("room");
    sealed.dedupe_range(&other, 2 * SECTOR, SECTOR, 2 * SECTOR).expect("room");
    set_attributes(&inode, &SetAttributes { mode: Some(0o600), ..SetAttributes::default() }).expect("room");
    assert!(read(&sealed, 0, 20_000).expect("whole") == content);
    assert!(other.verity().expect("whole").is_none());
    fixture.judge(|_| ());
}

#[test]
fn what_a_sealing_that_was_cut_off_left_is_removed() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let content = counted(500_000);
    let left = |ino: u64| {
        let inode = file(&fixture, ino, &content, false);
        let (tree, descriptor) = sealed(&content, USUAL);
        store(&inode, &tree, &descriptor, 100);
        inode
    };
    let count = |inode: &Inode| {
        let mut cursor = inode.tree().cursor(&keys::first_of(inode.id.ino), Wait::Yes).expect("readable");
        let mut count = 0;
        while let Some((key, _)) = cursor.item().filter(|(key, _)| key.objectid == inode.id.ino) {
            count += usize::from(matches!(key.kind, KeyType::VERITY_DESC_ITEM | KeyType::VERITY_MERKLE_ITEM));
            cursor.advance().expect("readable");
        }
        count
    };
    let (cut_off, whole) = (left(300), left(301));
    in_handle(&fixture.engine, ReserveItems::items(2), |handle| {
        cut_off.update(handle, |item| item.flags -= InodeFlags::VERITY)?;
        [300, 301].into_iter().try_for_each(|ino| orphan_item::insert(handle, cut_off.tree(), ino.into()))
    })
    .expect("room");
    assert!(count(&cut_off) > 40 && count(&cut_off) == count(&whole));
    let before = count(&whole);
    let orphans = orphan_item::find(&fixture.engine, cut_off.id.subvolume, cut_off.tree()).expect("room");
    assert_eq!((orphans, count(&cut_off), count(&whole)), (vec![], 0, before));
    remove_stale(&fixture.engine, cut_off.tree(), cut_off.id.ino).expect("nothing to do");
    assert!(read(&opened(cut_off), 0, 600_000).expect("whole") == content);
}

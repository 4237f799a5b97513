//! Zip archives for tests.

use flate2::Crc;

/// An entry of an archive: its name, its method, its bytes in the archive and its value.
pub type Zipped<'a> = (&'a str, u16, Vec<u8>, &'a [u8]);

/// Returns an entry that is not compressed.
pub fn stored<'a>(name: &'a str, value: &'a [u8]) -> Zipped<'a> {
    (name, 0, value.to_vec(), value)
}

/// Returns an archive without comment, extra fields and zip64.
pub fn zip(entries: &[Zipped<'_>]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, method, bytes, value) in entries {
        let mut crc = Crc::new();
        crc.update(value);
        let mut head =
            [&[20, 0, 0, 0][..], &method.to_le_bytes(), &[0; 4], &crc.sum().to_le_bytes()].concat();
        for number in [bytes.len(), value.len(), name.len()] {
            head.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        let offset = u32::try_from(out.len()).unwrap().to_le_bytes();
        directory.extend([b"PK\x01\x02\x14\x00", &*head, &[0; 10], &offset, name.as_bytes()].concat());
        out.extend([b"PK\x03\x04", &*head, name.as_bytes(), bytes].concat());
    }
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    let [len, start] =
        [directory.len(), out.len()].map(|number| u32::try_from(number).unwrap().to_le_bytes());
    [&*out, &directory, b"PK\x05\x06\0\0\0\0", &count, &count, &len, &start, &[0, 0]].concat()
}

//! The examples of RFC 7541, the bounds of the table, and invalid blocks.

use super::*;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Decodes a block to `name: value` lines.
fn decode(decoder: &mut Decoder, bytes: &[u8]) -> Result<Vec<String>, CompressionError> {
    let mut strings = Vec::new();
    let mut block = decoder.block(bytes);
    let mut lines = vec![];
    while let Some(field) = block.next(&mut strings)? {
        lines.push(alloc::format!("{}: {}", field.name.escape_ascii(), field.value.escape_ascii()));
    }
    Ok(lines)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn check(decoder: &mut Decoder, bytes: &str, expected: &[&str]) {
    assert_eq!(decode(decoder, &hex(bytes)).unwrap(), expected, "{bytes}");
}

fn check_error(bytes: &str) {
    assert_eq!(decode(&mut Decoder::new(), &hex(bytes)), Err(CompressionError), "{bytes}");
}

#[test]
fn requests_of_rfc_7541_c_3_are_decoded() {
    let decoder = &mut Decoder::new();
    let first = [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
    check(decoder, "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &first);
    let second =
        [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"];
    check(decoder, "8286 84be 5808 6e6f 2d63 6163 6865", &second);
    let third = [
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ];
    check(decoder, "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", &third);
}

#[test]
fn huffman_coded_requests_of_rfc_7541_c_4_are_decoded() {
    let decoder = &mut Decoder::new();
    let first = [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
    check(decoder, "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &first);
    let second =
        [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"];
    check(decoder, "8286 84be 5886 a8eb 1064 9cbf", &second);
}

#[test]
fn oldest_entries_are_evicted() {
    let decoder = &mut Decoder::new();
    // RFC 7541 C.5 with its table of 256 bytes.
    check(decoder, "3fe1 01", &[]);
    let first = [
        ":status: 302",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ];
    check(
        decoder,
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        &first,
    );
    check(decoder, "4803 3330 37c1 c0bf", &[":status: 307", first[1], first[2], first[3]]);
    // The first entry is gone.
    assert_eq!(decode(decoder, &hex("c2")), Err(CompressionError));
}

#[test]
fn table_survives_many_insertions() {
    let decoder = &mut Decoder::new();
    for round in 0..2000 {
        let value = alloc::format!("{round:0>width$}", width = 1 + round % 90);
        let mut block = hex("40 01 61");
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
        // The newest entry, by its index.
        block.push(0x80 | 62);
        let line = alloc::format!("a: {value}");
        assert_eq!(decode(decoder, &block).unwrap(), [line.clone(), line]);
    }
}

#[test]
fn entry_larger_than_the_table_empties_it() {
    let decoder = &mut Decoder::new();
    check(decoder, "4001 6101 62 be", &["a: b", "a: b"]);
    let mut block = hex("40 01 61 7f");
    // 5000 in the form of an integer after a prefix of seven bits.
    block.extend_from_slice(&[(5000 - 127) as u8 & 0x7f | 0x80, ((5000 - 127) >> 7) as u8]);
    block.extend_from_slice(&[b'x'; 5000]);
    assert!(decode(decoder, &block).is_ok());
    assert_eq!(decode(decoder, &[0xbe]), Err(CompressionError));
}

#[test]
fn invalid_blocks_are_refused() {
    check_error("80");
    check_error("be");
    check_error("00");
    check_error("0001");
    check_error("ff80 8080 8080 01");
    check_error("ff");
    // A size above the limit, and one after a field.
    check_error("3fff ff7f");
    check_error("8220");
    check_error("0085 f2b2 4a84 ff 84 49509f ff");
}

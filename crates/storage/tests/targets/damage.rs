//! How files are damaged: by what they consist of, or byte by byte.

use aerostat_storage::forge;
use serde_json::Value;

use super::Files;

/// Bytes that are read as choices; zeros when there are no more.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// Below a bound, which is small or of a file.
    fn below(&mut self, bound: usize) -> usize {
        let number = [self.byte(), self.byte(), 0, 0];
        u32::from_le_bytes(number) as usize % bound.max(1)
    }

    fn number(&mut self) -> u64 {
        EDGES[self.below(EDGES.len())]
    }
}

/// Numbers at the edges of what is counted.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    63,
    1024,
    8192,
    (1 << 21) - 1,
    1 << 24,
    1 << 31,
    u32::MAX as u64,
    (1 << 62) - 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Names and types that a document may hold.
const TEXTS: [&str; 13] = [
    "",
    "c0",
    "c1",
    "../manifest",
    "/dev/zero",
    "00000001-1-1.img",
    "00000001-1-1.end",
    "checkpoint/manifest",
    "frozen",
    "rows",
    "interval",
    "0000000000000000",
    "\u{0}é",
];

/// Damages files of those that are included, as long as there is input.
pub fn damage(files: &mut Files, input: &mut Input<'_>, includes: impl Fn(&str) -> bool) {
    let names: Vec<String> = files
        .keys()
        .filter(|name| includes(name))
        .cloned()
        .collect();
    while !input.0.is_empty() && !names.is_empty() {
        let name = &names[input.below(names.len())];
        let choice = input.byte();
        let Some(mut bytes) = files.remove(name) else {
            continue;
        };
        match choice {
            // Without a forged checksum, and without the file.
            0..8 => edit_bytes(&mut bytes, input),
            8..12 => continue,
            _ if name.ends_with(".log") => bytes = edit_log(&bytes, input),
            _ if name.ends_with("manifest") => bytes = edit_manifest(&bytes, input),
            _ if name.ends_with(".json") => bytes = edit_document(&bytes, input),
            _ if name.ends_with(".img") => {
                edit_bytes(&mut bytes, input);
                let tables = tables_of(files, name);
                // Of the table that the name says, if there is one.
                let id = name.rsplit('/').next().and_then(|name| name.get(..8));
                let id = id.and_then(|id| u64::from_str_radix(id, 16).ok());
                let table = tables.iter().find(|table| table["id"].as_u64() == id);
                if let Some(table) = table {
                    forge::image(&mut bytes, table.to_string().as_bytes());
                }
                describe_image(files, name, &bytes);
            }
            _ if name.ends_with(".end") => {
                edit_bytes(&mut bytes, input);
                describe_image(files, name, &bytes);
            }
            _ => edit_bytes(&mut bytes, input),
        }
        files.insert(name.clone(), bytes);
        // Seven times of eight.
        if name.starts_with("backup/checkpoint/") && choice & 7 != 7 {
            describe_backup(files);
        }
    }
}

/// One edit of any byte, or of a few.
fn edit_bytes(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    if bytes.is_empty() {
        return bytes.push(input.byte());
    }
    let (choice, at) = (input.byte(), input.below(bytes.len()));
    match choice & 7 {
        0 | 1 => bytes[at] ^= 1 << (input.byte() & 7),
        2 => bytes[at] = input.byte(),
        3 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][input.below(5)],
        4 => set(bytes, at, &input.number().to_le_bytes()),
        5 => set(bytes, at, &(input.number() as u32).to_le_bytes()),
        6 => {
            let more = bytes[at..bytes.len().min(at + 9)].to_vec();
            bytes.splice(at..at, more);
        }
        _ => {
            let end = bytes.len().min(at + 1 + input.below(64));
            bytes.drain(at..end);
        }
    }
}

fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    let room = bytes.len().saturating_sub(at);
    let value = &value[..value.len().min(room)];
    let at = at.min(bytes.len());
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Where the fields of a record are: kind, synced, LSN, transaction, clock.
const FIELDS: [(usize, usize); 5] = [(8, 1), (12, 4), (16, 8), (24, 8), (32, 8)];

/// Where the fields of a header are: format, tenant, number, LSN, timeline.
const HEADER_FIELDS: [(usize, usize); 5] = [(8, 4), (12, 4), (16, 8), (24, 8), (32, 8)];

const RECORD_HEAD_BYTES: usize = 40;

fn edit_log(bytes: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut pieces = forge::split_log(bytes);
    let (choice, at) = (input.byte(), input.below(pieces.len()));
    let other = input.below(pieces.len());
    match choice & 15 {
        0 => {
            let copy = pieces[at].clone();
            pieces.insert(other, copy);
        }
        1 => drop(pieces.remove(at)),
        2 => pieces.swap(at, other),
        // The redo of a commit before it, as of one that was too large.
        3 if at > 0 => {
            let mut rows = pieces[at].clone();
            set(&mut rows, 8, &[1]);
            set(&mut rows, 16, &[0; 8]);
            pieces.insert(at, rows);
        }
        4 | 5 => {
            let fields = if at == 0 { HEADER_FIELDS } else { FIELDS };
            let (field, width) = fields[input.below(fields.len())];
            let value = match input.byte() {
                small @ 0..16 => u64::from(small),
                _ => input.number(),
            };
            set(&mut pieces[at], field, &value.to_le_bytes()[..width]);
        }
        6..9 if pieces[at].get(8) == Some(&3) => {
            let piece = &mut pieces[at];
            let payload = edit_json(&piece[RECORD_HEAD_BYTES..], input);
            piece.truncate(RECORD_HEAD_BYTES);
            piece.extend(payload);
        }
        _ if at > 0 && pieces[at].len() > RECORD_HEAD_BYTES => {
            let mut payload = pieces[at].split_off(RECORD_HEAD_BYTES);
            edit_bytes(&mut payload, input);
            pieces[at].extend(payload);
        }
        _ => edit_bytes(&mut pieces[at], input),
    }
    if choice & 16 != 0 {
        renumber(&mut pieces);
    }
    forge::join_log(&pieces)
}

/// Gives records the LSNs that follow from the first.
fn renumber(pieces: &mut [Vec<u8>]) {
    let mut next = None;
    let records = pieces
        .iter_mut()
        .skip(1)
        .filter(|piece| piece.len() >= RECORD_HEAD_BYTES);
    for piece in records.filter(|piece| piece[8] != 1) {
        let own = u64::from_le_bytes(piece[16..24].try_into().unwrap());
        let lsn = next.unwrap_or(own);
        set(piece, 16, &lsn.to_le_bytes());
        next = Some(lsn.wrapping_add(1));
    }
}

fn edit_manifest(bytes: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let Some((json, mut catalog)) = forge::split_manifest(bytes) else {
        return bytes.to_vec();
    };
    if input.byte() < 16 {
        edit_bytes(&mut catalog, input);
        return forge::join_manifest(&json, &catalog);
    }
    forge::join_manifest(&edit_json(&json, input), &catalog)
}

fn edit_document(bytes: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let json = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    forge::join_backup(&edit_json(json, input))
}

/// One edit of one node, or of a byte.
fn edit_json(json: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut json = json.to_vec();
    let choice = input.byte();
    let Ok(mut document) = serde_json::from_slice::<Value>(&json) else {
        edit_bytes(&mut json, input);
        return json;
    };
    if choice < 8 {
        edit_bytes(&mut json, input);
        return json;
    }
    let mut at = input.below(nodes(&document));
    if let Some(node) = nth(&mut document, &mut at) {
        edit_node(node, choice, input);
    }
    serde_json::to_vec(&document).unwrap()
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum::<usize>(),
        _ => 0,
    }
}

fn nth<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, at)),
        Value::Object(map) => map.values_mut().find_map(|item| nth(item, at)),
        _ => None,
    }
}

fn edit_node(node: &mut Value, choice: u8, input: &mut Input<'_>) {
    match node {
        Value::Number(number) if choice & 3 != 3 => {
            let old = number.as_u64().unwrap_or(0);
            *node = match choice & 3 {
                0 => old.wrapping_add(1).into(),
                1 => old.wrapping_sub(1).into(),
                _ => input.number().into(),
            };
        }
        Value::String(_) if choice & 3 != 3 => *node = TEXTS[input.below(TEXTS.len())].into(),
        Value::Bool(value) if choice & 3 != 3 => *value = !*value,
        Value::Array(items) if !items.is_empty() && choice & 7 != 7 => {
            let at = input.below(items.len());
            match choice & 3 {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.swap(0, at),
                _ => items.clear(),
            }
        }
        Value::Object(map) if !map.is_empty() && choice & 7 != 7 => {
            let key = map.keys().nth(input.below(map.len())).cloned().unwrap();
            match choice & 1 {
                0 => drop(map.remove(&key)),
                _ => drop(map.insert(key, input.number().into())),
            }
        }
        _ => {
            *node = match choice >> 3 & 3 {
                0 => Value::Null,
                1 => input.number().into(),
                2 => TEXTS[input.below(TEXTS.len())].into(),
                _ => Value::Array(vec![input.number().into()]),
            }
        }
    }
}

/// The manifest in whose folder an image is.
fn manifest_of(image: &str) -> String {
    let folder = image.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/manifest")
}

fn manifest(files: &Files, image: &str) -> Option<(Value, Vec<u8>)> {
    let (json, catalog) = forge::split_manifest(files.get(&manifest_of(image))?)?;
    Some((serde_json::from_slice(&json).ok()?, catalog))
}

fn tables_of(files: &Files, image: &str) -> Vec<Value> {
    let manifest = manifest(files, image).map(|(json, _)| json);
    let tables = manifest.and_then(|json| json["tables"].as_array().cloned());
    tables.unwrap_or_default()
}

/// Lets the manifest say what an image is now.
fn describe_image(files: &mut Files, name: &str, bytes: &[u8]) {
    let file = name.rsplit('/').next().unwrap_or_default();
    let Some((mut json, catalog)) = manifest(files, name) else {
        return;
    };
    describe(&mut json, file, bytes);
    let text = serde_json::to_vec(&json).unwrap();
    files.insert(manifest_of(name), forge::join_manifest(&text, &catalog));
}

/// Sets length and checksum wherever a file of this name is described.
fn describe(json: &mut Value, file: &str, bytes: &[u8]) {
    match json {
        Value::Object(map) if map.get("name").and_then(Value::as_str) == Some(file) => {
            map.insert("bytes".into(), bytes.len().into());
            map.insert("crc32".into(), crc32fast::hash(bytes).into());
        }
        Value::Object(map) => map
            .values_mut()
            .for_each(|item| describe(item, file, bytes)),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| describe(item, file, bytes)),
        _ => {}
    }
}

/// Lets a backup's description say what its manifest does, for else it is refused at once.
fn describe_backup(files: &mut Files) -> Option<()> {
    let name = "backup/checkpoint/manifest";
    let (manifest, _) = manifest(files, name)?;
    let line = files.get("backup/backup.json")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut document: Value = serde_json::from_slice(line).ok()?;
    let fields = document.as_object_mut()?;
    for field in ["tenant", "timeline", "at", "taken_micros", "log_from"] {
        fields.insert(field.into(), manifest[field].clone());
    }
    let tables = manifest["tables"].as_array()?.iter();
    let images: Vec<&Value> = tables
        .filter_map(|table| table["images"].as_array())
        .flatten()
        .collect();
    // An image, and the list of rows that have ended since, if it has one.
    let named: Vec<&Value> = images
        .iter()
        .flat_map(|image| {
            [
                Some(*image),
                image.get("ended").filter(|ended| !ended.is_null()),
            ]
        })
        .flatten()
        .collect();
    let sum = |values: &[&Value], field: &str| {
        let numbers = values.iter().filter_map(|value| value[field].as_u64());
        numbers.fold(0, u64::wrapping_add)
    };
    let bytes = files.get(name)?;
    let mut described: Vec<Value> = named
        .iter()
        .filter_map(|image| {
            let name = format!("checkpoint/{}", image["name"].as_str()?);
            Some(serde_json::json!({ "name": name, "bytes": image["bytes"], "crc32": image["crc32"] }))
        })
        .collect();
    described.push(serde_json::json!({
        "name": "checkpoint/manifest",
        "bytes": bytes.len(),
        "crc32": crc32fast::hash(bytes),
    }));
    fields.insert("rows".into(), sum(&images, "rows").into());
    fields.insert(
        "bytes".into(),
        sum(&named, "bytes").wrapping_add(bytes.len() as u64).into(),
    );
    fields.insert("files".into(), described.into());
    let text = serde_json::to_vec(&document).ok()?;
    files.insert("backup/backup.json".into(), forge::join_backup(&text));
    Some(())
}

//! `cargo xtask sample`: writes `examples/data/deliveries.jsonl`, the file that `examples/loyalty.rs` reads.
//!
//! The same bytes every time, on every machine: a seeded generator of its own, no clock, no hashing.

use crate::{Result, servers};

const FILE: &str = "examples/data/deliveries.jsonl";
const EVENTS: u64 = 4_000;
const REDELIVERIES: u64 = 1_597;
const CUSTOMERS: u64 = 200;

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
/// The events happen within this time, counted like all times here in milliseconds from [`START`].
const SPAN: u64 = 24 * HOUR;
/// 2026-03-01T09:00:00Z, as milliseconds from the start of that month.
const START: u64 = 9 * HOUR;

pub(crate) fn run() -> Result<()> {
    let path = servers::workspace().join(FILE);
    let sample = sample();
    std::fs::write(&path, &sample).map_err(|e| format!("could not write {}: {e}", path.display()))?;
    println!("{FILE}: {} deliveries, {} bytes", sample.lines().count(), sample.len());
    Ok(())
}

/// One event, as its producer made it.
struct Event {
    happened: u64,
    id: String,
    kind: &'static str,
    payload: String,
}

/// One line of the file.
struct Delivery {
    at: u64,
    line: String,
}

/// The whole file: every event at least once, in the order in which a broker delivered.
fn sample() -> String {
    let mut random = Random(2026);
    let mut events: Vec<Event> = (0..EVENTS).map(|number| event(number, &mut random)).collect();
    let mut deliveries: Vec<Delivery> = Vec::new();
    for event in &events {
        let at = event.happened + delay(&mut random);
        deliveries.push(event.delivered(at));
    }
    for _ in 0..REDELIVERIES {
        let number = random.below(EVENTS) as usize;
        let at = deliveries[number].at + pause(&mut random);
        deliveries.push(events[number].delivered(at));
    }
    deliveries.extend(faults(&mut events, &deliveries));
    // Stable: two deliveries of one millisecond stay in the order in which they were made.
    deliveries.sort_by_key(|delivery| delivery.at);
    deliveries.into_iter().fold(String::new(), |file, delivery| file + &delivery.line + "\n")
}

fn event(number: u64, random: &mut Random) -> Event {
    let customer = 1 + random.below(CUSTOMERS);
    let order = 10_000 + number;
    let (kind, points, detail) = match random.below(20) {
        0 => ("ReferralRewarded", 500, format!(r#""referred":"c-{:03}""#, 1 + random.below(CUSTOMERS))),
        1 | 2 => ("PointsRedeemed", -100 * random.between(1, 5), format!(r#""voucher":"v-{order}""#)),
        _ => ("PurchaseCompleted", random.between(1, 400), format!(r#""order":"o-{order}""#)),
    };
    Event {
        happened: number * SPAN / EVENTS + random.below(20 * SECOND),
        // Two producers, each with its own habit of naming events.
        id: if random.below(4) == 0 { random.uuid() } else { format!("evt-{number:06}") },
        kind,
        payload: format!(r#"{{"customer":"c-{customer:03}","points":{points},{detail}}}"#),
    }
}

/// From an event to its first delivery: mostly at once, sometimes long enough to be overtaken.
fn delay(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 30 * SECOND + random.below(600 * SECOND),
        _ => 20 + random.below(2 * SECOND),
    }
}

/// From the first delivery to another: a lost acknowledgement takes seconds, a replay hours.
fn pause(random: &mut Random) -> u64 {
    match random.below(5) {
        0 | 1 => HOUR + random.below(8 * HOUR),
        _ => SECOND + random.below(29 * SECOND),
    }
}

/// What a consumer meets once in a while: one id with two payloads, a line that was cut off, an empty id.
fn faults(events: &mut [Event], delivered: &[Delivery]) -> [Delivery; 3] {
    let reused = 1_234;
    let customer = &events[reused].payload[..r#"{"customer":"c-000""#.len()];
    let other_payload = format!(r#"{customer},"points":77,"order":"o-99999"}}"#);
    events[reused].payload = other_payload;

    let cut = 2_345;
    let mut cut_off = events[cut].delivered(delivered[cut].at + 5 * SECOND);
    cut_off.line.truncate(cut_off.line.len() / 2);

    let nameless = 3_456;
    events[nameless].id.clear();

    [
        events[reused].delivered(delivered[reused].at + 2 * HOUR),
        cut_off,
        events[nameless].delivered(delivered[nameless].at + 7 * SECOND),
    ]
}

impl Event {
    fn delivered(&self, at: u64) -> Delivery {
        let Self { id, kind, payload, .. } = self;
        let time = timestamp(at);
        let line = format!(r#"{{"delivered_at":"{time}","id":"{id}","type":"{kind}","payload":{payload}}}"#);
        Delivery { at, line }
    }
}

/// In RFC 3339. The sample lies within one month, so no calendar is needed.
fn timestamp(at: u64) -> String {
    let at = START + at;
    let (day, hour, minute) = (1 + at / (24 * HOUR), at / HOUR % 24, at / (60 * SECOND) % 60);
    let (second, millisecond) = (at / SECOND % 60, at % SECOND);
    format!("2026-03-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).unsigned_abs()).cast_signed()
    }

    /// A version 4 UUID.
    fn uuid(&mut self) -> String {
        let (high, low) = (self.next() & !0xf000 | 0x4000, self.next() >> 2 | 1 << 63);
        let mut text = String::with_capacity(36);
        for (position, digit) in format!("{high:016x}{low:016x}").chars().enumerate() {
            if [8, 12, 16, 20].contains(&position) {
                text.push('-');
            }
            text.push(digit);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_sample_is_what_the_command_writes() {
        let committed = std::fs::read_to_string(servers::workspace().join(FILE)).unwrap();
        assert!(committed == sample(), "run `cargo xtask sample` and commit {FILE}");
    }
}

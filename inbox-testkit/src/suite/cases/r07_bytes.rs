//! R7 and R11: ids are compared byte for byte; one id with two fingerprints is a mismatch.

use inbox_core::{ErrorKind, Fingerprint, Message, MessageId, Registration};

use super::{assert_duplicate, assert_kind, cases, deliver, handle, id, message, original};
use crate::suite::stage::{Stage, TestInbox};

/// Every one of the ids is new, and then every one a duplicate.
async fn all_differ(stage: &dyn Stage, texts: &[&str]) {
    let inbox = stage.inbox("billing");
    for text in texts {
        assert_eq!(deliver(&*inbox, &message(text)).await, Registration::New, "{text:?}");
    }
    for text in texts {
        assert_duplicate(&deliver(&*inbox, &message(text)).await);
    }
}

fn with_payload(text: &str, payload: &[u8]) -> Message {
    message(text).with_payload(payload)
}

async fn reopen(inbox: &dyn TestInbox, message: &Message) -> Result<Registration, inbox_core::Error> {
    let mut tx = inbox.begin().await.expect("begin");
    tx.register(message).await
}

cases! {
    /// Case is kept (B05): a collation that folds it merges two messages.
    once() fn r07_case_is_kept(stage) {
        all_differ(&*stage, &["evt_4qD3", "evt_4qd3", "EVT_4QD3"]).await;
    }

    /// Accents, Unicode forms and look-alikes are kept (B05).
    once() fn r07_accents_and_unicode_forms_are_kept(stage) {
        all_differ(&*stage, &["é", "e", "e\u{301}", "ß", "ss", "ı", "i", "\u{ff11}", "1"]).await;
    }

    /// Emoji and characters outside the basic plane are kept (B05).
    once() fn r07_emoji_are_kept(stage) {
        all_differ(&*stage, &["😀", "😁", "👩\u{200d}🚀", "👩🚀", "𝟙", "x\u{200d}", "x"]).await;
    }

    /// Spaces at the ends are kept.
    once() fn r07_spaces_at_the_ends_are_kept(stage) {
        all_differ(&*stage, &["m", "m ", " m", "m\t", "m\n", "\u{a0}m"]).await;
    }

    /// Digits stay text (B53): leading zeros, signs and exponents make different ids.
    once() fn r07_digits_stay_text(stage) {
        all_differ(&*stage, &["42", "042", "+42", "42.0", "4.2e1", "0x2a", "9007199254740993", "9007199254740992"]).await;
    }

    /// Ids of 255 bytes that differ in the last one are two ids (B01, B36); none is cut.
    once() fn r07_long_ids_are_kept_whole(stage) {
        let stem = "x".repeat(MessageId::MAX_BYTES - 1);
        let (first, second) = (format!("{stem}1"), format!("{stem}2"));
        all_differ(&*stage, &[&first, &second, &stem, &first[..8]]).await;
    }

    /// Incompressible ids of the full length fit into the key (B36).
    once() fn r07_incompressible_ids_fit_the_key(stage) {
        let mut state = 7_u64;
        let text: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from((state >> 33) % 94).expect("below 94"))
        })
        .take(MessageId::MAX_BYTES)
        .collect();
        all_differ(&*stage, &[&text]).await;
    }

    /// Consumers are compared byte for byte as well, up to 100 bytes.
    once() fn r07_consumers_are_compared_by_bytes(stage) {
        let stem = "c".repeat(99);
        let names = ["Billing", "billing", "billing ", " billing", "bílling", &format!("{stem}1"), &format!("{stem}2")];
        for name in names {
            assert_eq!(deliver(&*stage.inbox(name), &message("m-1")).await, Registration::New, "{name:?}");
        }
        for name in names {
            assert_duplicate(&deliver(&*stage.inbox(name), &message("m-1")).await);
        }
    }

    /// Spellings of one UUID are different texts, but one id through the UUID constructor (B100).
    once() fn r07_uuid_spellings_are_one_id_by_constructor_only(stage) {
        let lower = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let (upper, braced) = (lower.to_uppercase(), format!("{{{lower}}}"));
        all_differ(&*stage, &[lower, &upper, &braced]).await;
        let inbox = stage.inbox("mailing");
        let parsed = |text: &str| Message::new(MessageId::parse_uuid(text).expect("a UUID"), "T").expect("valid");
        assert_eq!(deliver(&*inbox, &parsed(&upper)).await, Registration::New);
        assert_duplicate(&deliver(&*inbox, &parsed(&braced)).await);
    }

    /// The event type is kept as given, up to 255 bytes.
    once() fn r07_event_type_is_kept_whole(stage) {
        let inbox = stage.inbox("billing");
        let long = format!(" {}é", "T".repeat(252));
        let copy = Message::new(id("m-1"), long.as_str()).expect("255 bytes");
        deliver(&*inbox, &copy).await;
        assert_eq!(original(deliver(&*inbox, &copy).await).event_type, long);
    }

    /// The same id with another fingerprint is an error that nobody acknowledges (B101).
    every_level() fn r11_other_fingerprint_is_a_mismatch(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &with_payload("m-1", b"10 points")).await;
        let error = reopen(&*inbox, &with_payload("m-1", b"1000 points")).await.expect_err("a mismatch");
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(!error.is_retryable());
    }

    /// The same fingerprint is a duplicate, and comes back with the original.
    every_level() fn r11_same_fingerprint_is_duplicate(stage) {
        let inbox = stage.inbox("billing");
        let copy = with_payload("m-1", b"10 points");
        deliver(&*inbox, &copy).await;
        let found = original(deliver(&*inbox, &copy).await);
        assert_eq!(found.fingerprint, Some(Fingerprint::of(b"10 points")));
    }

    /// A fingerprint missing on either side is no mismatch.
    every_level() fn r11_missing_fingerprint_is_no_mismatch(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &with_payload("m-1", b"10 points")).await;
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
        deliver(&*inbox, &message("m-2")).await;
        assert_duplicate(&deliver(&*inbox, &with_payload("m-2", b"10 points")).await);
    }

    /// A mismatch within one transaction is one as well, and through `process`.
    once() fn r11_mismatch_through_process(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &with_payload("m-1", b"10 points")).await;
        let script = crate::suite::stage::Script::effect();
        let outcome = inbox.process(&with_payload("m-1", b"1000 points"), &script).await;
        match outcome {
            Err(crate::suite::stage::HandlerError::Inbox(error)) => assert_kind::<()>(Err(error), ErrorKind::Mismatch),
            other => panic!("expected a mismatch, got {other:?}"),
        }
        assert_eq!((script.calls(), stage.effects("m-1").await), (0, 1));
    }
}

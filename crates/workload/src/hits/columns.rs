//! The hundred columns: names, types, and where each value comes from.

use Shape::{Flag, Of, Range, Seldom, Skewed, Wide, Word};
use Source::{View, Visitor};

/// How a value is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// One with so many of 1,000, else zero.
    Flag(u64),
    /// All of these alike, both ends among them.
    Range(i32, i32),
    /// Below this, small numbers likely.
    Skewed(u64),
    /// Zero, but with so many of 1,000 from 1 to the other, small numbers likely.
    Seldom(u64, u64),
    /// One of these, the first likely.
    Of(&'static [i32]),
    /// Any positive `bigint`.
    Wide,
    /// Text: empty, but with so many of 1,000 one of so many words.
    Word(u64, u64),
}

/// Where a column's values come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// Drawn for each view.
    View(Shape),
    /// Drawn for each visitor.
    Visitor(Shape),
    Site,
    ViewedAt,
    ViewedOn,
    /// Some seconds after the view.
    ReceivedAt,
    ViewId,
    VisitorId,
    Url,
    UrlHash,
    Referrer,
    ReferrerHash,
    Title,
    SearchEngine,
    SearchText,
    Traffic,
    IsMobile,
    PhoneBrand,
    PhoneModel,
}

/// Widths of screens.
const WIDTHS: &[i32] = &[
    1366, 1280, 1920, 1024, 1600, 1440, 1680, 320, 1152, 768, 480, 2560, 800,
];

/// Heights of screens.
const HEIGHTS: &[i32] = &[
    768, 1024, 1080, 800, 900, 1050, 480, 864, 720, 600, 1440, 320,
];

/// A column: name, SQL type, source of its values.
pub(super) type Column = (&'static str, &'static str, Source);

/// The primary key: rows are generated in its order.
pub(super) const PRIMARY_KEY: &[&str] = &["site_id", "viewed_at", "view_id"];

/// The columns, in order.
#[rustfmt::skip]
pub(super) const COLUMNS: [Column; 100] = [
    ("site_id", "integer", Source::Site),
    ("viewed_at", "timestamp", Source::ViewedAt),
    ("view_id", "bigint", Source::ViewId),
    ("viewed_on", "date", Source::ViewedOn),
    ("received_at", "timestamp", Source::ReceivedAt),
    ("visitor_id", "bigint", Source::VisitorId),
    ("session_id", "bigint", View(Wide)),
    ("url", "text", Source::Url),
    ("url_hash", "bigint", Source::UrlHash),
    ("referrer", "text", Source::Referrer),
    ("referrer_hash", "bigint", Source::ReferrerHash),
    ("title", "text", Source::Title),
    ("search_engine", "smallint", Source::SearchEngine),
    ("search_text", "text", Source::SearchText),
    ("traffic_source", "smallint", Source::Traffic),
    ("ad_network", "smallint", View(Seldom(6, 60))),
    ("is_reload", "smallint", View(Flag(70))),
    ("is_excluded", "smallint", View(Flag(30))),
    ("is_outbound", "smallint", View(Flag(180))),
    ("is_download", "smallint", View(Flag(25))),
    ("is_not_bounce", "smallint", View(Flag(600))),
    ("is_event", "smallint", View(Flag(20))),
    ("is_parameter", "smallint", View(Flag(10))),
    ("is_artificial", "smallint", View(Flag(2))),
    ("is_old_counter", "smallint", View(Flag(1))),
    ("is_mobile", "smallint", Source::IsMobile),
    ("phone_brand", "smallint", Source::PhoneBrand),
    ("phone_model", "text", Source::PhoneModel),
    ("region", "integer", Visitor(Skewed(5_000))),
    ("country_code", "text", Visitor(Word(960, 120))),
    ("language_code", "text", Visitor(Word(990, 60))),
    ("client_address", "integer", Visitor(Range(1, 2_000_000_000))),
    ("remote_address", "integer", Visitor(Range(1, 2_000_000_000))),
    ("address_network", "integer", Visitor(Skewed(40_000))),
    ("time_zone", "smallint", Visitor(Of(&[180, 120, 240, 60, 300, 0, -300, 480]))),
    ("screen_width", "smallint", Visitor(Of(WIDTHS))),
    ("screen_height", "smallint", Visitor(Of(HEIGHTS))),
    ("screen_depth", "smallint", Visitor(Of(&[24, 32, 16]))),
    ("window_width", "smallint", Visitor(Range(300, 1_900))),
    ("window_height", "smallint", Visitor(Range(200, 1_100))),
    ("operating_system", "smallint", Visitor(Skewed(90))),
    ("browser", "smallint", Visitor(Skewed(80))),
    ("browser_major", "smallint", Visitor(Skewed(60))),
    ("browser_minor", "text", Visitor(Word(800, 40))),
    ("has_scripts", "smallint", Visitor(Flag(970))),
    ("has_cookies", "smallint", Visitor(Flag(985))),
    ("has_java", "smallint", Visitor(Flag(550))),
    ("plugin_major", "smallint", Visitor(Of(&[11, 10, 0, 9]))),
    ("plugin_minor", "smallint", Visitor(Skewed(10))),
    ("plugin_version", "text", Visitor(Word(30, 20))),
    ("runtime_version", "smallint", Visitor(Seldom(300, 6))),
    ("age_group", "smallint", Visitor(Of(&[0, 25, 18, 35, 45, 55]))),
    ("sex", "smallint", Visitor(Range(0, 2))),
    ("income_group", "smallint", Visitor(Skewed(5))),
    ("interests", "smallint", Visitor(Skewed(16_000))),
    ("is_robot", "smallint", Visitor(Seldom(8, 4))),
    ("code_version", "integer", Visitor(Skewed(300))),
    ("visitor_first_seen", "integer", Visitor(Range(1_400_000_000, 1_772_000_000))),
    ("visits_before", "integer", Visitor(Skewed(2_000))),
    ("referrer_region", "integer", View(Seldom(150, 2_000))),
    ("referrer_category", "smallint", View(Seldom(220, 20_000))),
    ("url_category", "smallint", View(Seldom(450, 20_000))),
    ("url_region", "integer", View(Seldom(350, 3_000))),
    ("search_page", "smallint", View(Seldom(90, 20))),
    ("ad_banner", "integer", View(Seldom(9, 40_000))),
    ("ad_order", "integer", View(Seldom(4, 9_000))),
    ("social_action", "text", View(Word(3, 12))),
    ("social_network", "text", View(Word(4, 8))),
    ("social_page", "text", View(Word(3, 20_000))),
    ("goals", "integer", View(Seldom(90, 400))),
    ("goal_price", "bigint", View(Seldom(5, 900_000))),
    ("order_id", "text", View(Word(2, 60_000))),
    ("currency", "text", View(Word(10, 6))),
    ("currency_number", "smallint", View(Seldom(10, 6))),
    ("campaign_source", "text", View(Word(25, 300))),
    ("campaign_medium", "text", View(Word(25, 30))),
    ("campaign_name", "text", View(Word(25, 3_000))),
    ("campaign_term", "text", View(Word(12, 9_000))),
    ("campaign_content", "text", View(Word(12, 6_000))),
    ("from_tag", "text", View(Word(15, 500))),
    ("has_click_id", "smallint", View(Flag(12))),
    ("page_charset", "text", View(Word(950, 8))),
    ("page_format", "text", View(Word(5, 40))),
    ("page_errors", "smallint", View(Seldom(30, 8))),
    ("history_length", "smallint", View(Skewed(50))),
    ("scroll_depth", "smallint", View(Range(0, 100))),
    ("clicks", "smallint", View(Skewed(40))),
    ("seconds_on_page", "integer", View(Skewed(4_000))),
    ("dns_ms", "integer", View(Seldom(400, 3_000))),
    ("connect_ms", "integer", View(Seldom(500, 6_000))),
    ("response_start_ms", "integer", View(Skewed(20_000))),
    ("response_end_ms", "integer", View(Skewed(30_000))),
    ("fetch_ms", "integer", View(Skewed(10_000))),
    ("render_ms", "integer", View(Skewed(60_000))),
    ("body_bytes", "integer", View(Skewed(4_000_000))),
    ("experiment", "smallint", View(Seldom(200, 32))),
    ("request_number", "integer", View(Skewed(1_000))),
    ("counter_class", "smallint", View(Range(-1, 1))),
    ("sample", "smallint", View(Range(0, 99))),
    ("request_hash", "bigint", View(Wide)),
];

//! The 43 queries: for each of ClickBench's, in its order, one that asks the same of our table.
//!
//! Thresholds of HAVING are a thousandth of the rows, as there. Visitor, site and hashes that are
//! looked for exist; OFFSETs are as deep as ten million rows allow.

use super::view::{self, Page};
use super::{Hits, names};

/// One query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Name, `H1` to `H43`.
    pub id: &'static str,
    /// The ORDER BY clause, as result columns.
    pub order_by: &'static [usize],
    template: &'static str,
}

impl Query {
    /// The SQL text for this data set, without a semicolon.
    pub fn sql(&self, hits: &Hits) -> String {
        let site = view::largest_site();
        let page = |site| Page { site, number: 0 };
        let sums: Vec<String> = (0..90)
            .map(|add| format!("sum(screen_width + {add})"))
            .collect();
        self.template
            .replace(":sums", &sums.join(", "))
            .replace(":many", &(hits.rows() / 1_000).to_string())
            .replace(":site", &view::site_id(site).to_string())
            .replace(
                ":visitor",
                &view::visitor_id(hits, hits.visitors() / 2).to_string(),
            )
            .replace(":page", &page(site).hash(hits).to_string())
            .replace(":word", names::SOUGHT)
    }
}

macro_rules! queries {
    ($($id:literal $order_by:tt $template:literal)*) => {
        [$(Query { id: $id, order_by: &$order_by, template: $template },)*]
    };
}

/// The queries in ClickBench's order.
#[rustfmt::skip]
pub const QUERIES: [Query; 43] = queries! {
    "H1" [] "SELECT count(*) FROM hits"
    "H2" [] "SELECT count(*) FROM hits WHERE ad_network <> 0"
    "H3" [] "SELECT sum(ad_network), count(*), avg(screen_width) FROM hits"
    "H4" [] "SELECT avg(visitor_id) FROM hits"
    "H5" [] "SELECT count(DISTINCT visitor_id) FROM hits"
    "H6" [] "SELECT count(DISTINCT search_text) FROM hits"
    "H7" [] "SELECT min(viewed_on), max(viewed_on) FROM hits"
    "H8" [1] "SELECT ad_network, count(*) AS views FROM hits WHERE ad_network <> 0
GROUP BY ad_network ORDER BY views DESC"
    "H9" [1] "SELECT region, count(DISTINCT visitor_id) AS visitors FROM hits
GROUP BY region ORDER BY visitors DESC LIMIT 10"
    "H10" [2] "SELECT region, sum(ad_network), count(*) AS views, avg(screen_width), count(DISTINCT visitor_id)
FROM hits GROUP BY region ORDER BY views DESC LIMIT 10"
    "H11" [1] "SELECT phone_model, count(DISTINCT visitor_id) AS visitors FROM hits WHERE phone_model <> ''
GROUP BY phone_model ORDER BY visitors DESC LIMIT 10"
    "H12" [2] "SELECT phone_brand, phone_model, count(DISTINCT visitor_id) AS visitors FROM hits
WHERE phone_model <> '' GROUP BY phone_brand, phone_model ORDER BY visitors DESC LIMIT 10"
    "H13" [1] "SELECT search_text, count(*) AS views FROM hits WHERE search_text <> ''
GROUP BY search_text ORDER BY views DESC LIMIT 10"
    "H14" [1] "SELECT search_text, count(DISTINCT visitor_id) AS visitors FROM hits WHERE search_text <> ''
GROUP BY search_text ORDER BY visitors DESC LIMIT 10"
    "H15" [2] "SELECT search_engine, search_text, count(*) AS views FROM hits WHERE search_text <> ''
GROUP BY search_engine, search_text ORDER BY views DESC LIMIT 10"
    "H16" [1] "SELECT visitor_id, count(*) AS views FROM hits GROUP BY visitor_id ORDER BY views DESC LIMIT 10"
    "H17" [2] "SELECT visitor_id, search_text, count(*) AS views FROM hits
GROUP BY visitor_id, search_text ORDER BY views DESC LIMIT 10"
    "H18" [] "SELECT visitor_id, search_text, count(*) FROM hits GROUP BY visitor_id, search_text LIMIT 10"
    "H19" [3] "SELECT visitor_id, extract(minute FROM viewed_at) AS minute_of_hour, search_text, count(*) AS views
FROM hits GROUP BY visitor_id, minute_of_hour, search_text ORDER BY views DESC LIMIT 10"
    "H20" [] "SELECT visitor_id FROM hits WHERE visitor_id = :visitor"
    "H21" [] "SELECT count(*) FROM hits WHERE url LIKE '%:word%'"
    "H22" [2] "SELECT search_text, min(url), count(*) AS views FROM hits
WHERE url LIKE '%:word%' AND search_text <> '' GROUP BY search_text ORDER BY views DESC LIMIT 10"
    "H23" [3] "SELECT search_text, min(url), min(title), count(*) AS views, count(DISTINCT visitor_id) FROM hits
WHERE title LIKE '%Balloon%' AND url NOT LIKE '%.:word.%' AND search_text <> ''
GROUP BY search_text ORDER BY views DESC LIMIT 10"
    "H24" [1] "SELECT * FROM hits WHERE url LIKE '%:word%' ORDER BY viewed_at LIMIT 10"
    "H25" [1] "SELECT search_text, viewed_at FROM hits WHERE search_text <> '' ORDER BY viewed_at LIMIT 10"
    "H26" [0] "SELECT search_text FROM hits WHERE search_text <> '' ORDER BY search_text LIMIT 10"
    "H27" [1, 0] "SELECT search_text, viewed_at FROM hits WHERE search_text <> ''
ORDER BY viewed_at, search_text LIMIT 10"
    "H28" [1] "SELECT site_id, avg(length(url)) AS url_length, count(*) AS views FROM hits WHERE url <> ''
GROUP BY site_id HAVING count(*) > :many ORDER BY url_length DESC LIMIT 25"
    "H29" [1] r"SELECT regexp_replace(referrer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS host,
avg(length(referrer)) AS referrer_length, count(*) AS views, min(referrer) FROM hits WHERE referrer <> ''
GROUP BY host HAVING count(*) > :many ORDER BY referrer_length DESC LIMIT 25"
    "H30" [] "SELECT :sums FROM hits"
    "H31" [2] "SELECT search_engine, client_address, count(*) AS views, sum(is_reload), avg(screen_width) FROM hits
WHERE search_text <> '' GROUP BY search_engine, client_address ORDER BY views DESC LIMIT 10"
    "H32" [2] "SELECT view_id, client_address, count(*) AS views, sum(is_reload), avg(screen_width) FROM hits
WHERE search_text <> '' GROUP BY view_id, client_address ORDER BY views DESC LIMIT 10"
    "H33" [2] "SELECT view_id, client_address, count(*) AS views, sum(is_reload), avg(screen_width) FROM hits
GROUP BY view_id, client_address ORDER BY views DESC LIMIT 10"
    "H34" [1] "SELECT url, count(*) AS views FROM hits GROUP BY url ORDER BY views DESC LIMIT 10"
    "H35" [2] "SELECT 1 AS one, url, count(*) AS views FROM hits GROUP BY one, url ORDER BY views DESC LIMIT 10"
    "H36" [4] "SELECT client_address, client_address - 1 AS less_one, client_address - 2 AS less_two,
client_address - 3 AS less_three, count(*) AS views FROM hits
GROUP BY client_address, client_address - 1, client_address - 2, client_address - 3 ORDER BY views DESC LIMIT 10"
    "H37" [1] "SELECT url, count(*) AS views FROM hits
WHERE site_id = :site AND viewed_on >= DATE '2026-03-01' AND viewed_on <= DATE '2026-03-31'
AND is_excluded = 0 AND is_reload = 0 AND url <> '' GROUP BY url ORDER BY views DESC LIMIT 10"
    "H38" [1] "SELECT title, count(*) AS views FROM hits
WHERE site_id = :site AND viewed_on >= DATE '2026-03-01' AND viewed_on <= DATE '2026-03-31'
AND is_excluded = 0 AND is_reload = 0 AND title <> '' GROUP BY title ORDER BY views DESC LIMIT 10"
    "H39" [1] "SELECT url, count(*) AS views FROM hits
WHERE site_id = :site AND viewed_on >= DATE '2026-03-01' AND viewed_on <= DATE '2026-03-31'
AND is_reload = 0 AND is_outbound <> 0 AND is_download = 0
GROUP BY url ORDER BY views DESC LIMIT 10 OFFSET 1000"
    "H40" [5] "SELECT traffic_source, search_engine, ad_network,
CASE WHEN search_engine = 0 AND ad_network = 0 THEN referrer ELSE '' END AS source, url AS target, count(*) AS views
FROM hits WHERE site_id = :site AND viewed_on >= DATE '2026-03-01' AND viewed_on <= DATE '2026-03-31'
AND is_reload = 0 GROUP BY traffic_source, search_engine, ad_network, source, target
ORDER BY views DESC LIMIT 10 OFFSET 1000"
    "H41" [2] "SELECT url_hash, viewed_on, count(*) AS views FROM hits
WHERE site_id = :site AND viewed_on >= DATE '2026-03-01' AND viewed_on <= DATE '2026-03-31'
AND is_reload = 0 AND traffic_source IN (-1, 6) AND referrer_hash = :page
GROUP BY url_hash, viewed_on ORDER BY views DESC LIMIT 10 OFFSET 100"
    "H42" [2] "SELECT window_width, window_height, count(*) AS views FROM hits
WHERE site_id = :site AND viewed_on >= DATE '2026-03-01' AND viewed_on <= DATE '2026-03-31'
AND is_reload = 0 AND is_excluded = 0 AND url_hash = :page
GROUP BY window_width, window_height ORDER BY views DESC LIMIT 10 OFFSET 100"
    "H43" [0] "SELECT date_trunc('minute', viewed_at) AS minute, count(*) AS views FROM hits
WHERE site_id = :site AND viewed_on >= DATE '2026-03-14' AND viewed_on <= DATE '2026-03-15'
AND is_reload = 0 AND is_excluded = 0
GROUP BY date_trunc('minute', viewed_at) ORDER BY date_trunc('minute', viewed_at) LIMIT 10 OFFSET 1000"
};

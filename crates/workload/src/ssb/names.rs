//! The value domains of SSB's text columns. Rows hold codes, these tables turn
//! codes into text. The lists are those of TPC-H (specification 4.2.2.13), from
//! which SSB takes them.

/// The regions, by region code.
pub const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// The nations, by nation code, each with its region's code.
pub const NATIONS: [(&str, u8); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];

/// Cities per nation; a city's code is nation · 10 + digit.
pub const CITIES_PER_NATION: u8 = 10;

/// Number of cities.
pub const CITIES: usize = NATIONS.len() * CITIES_PER_NATION as usize;

/// Market segments.
pub const SEGMENTS: [&str; 5] = [
    "AUTOMOBILE",
    "BUILDING",
    "FURNITURE",
    "HOUSEHOLD",
    "MACHINERY",
];

/// Order priorities.
pub const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];

/// The only ship priority there is.
pub const SHIP_PRIORITY: &str = "0";

/// Ship modes.
pub const SHIP_MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "TRUCK", "MAIL", "FOB", "SHIP"];

/// Manufacturers; each has five categories of forty brands.
pub const MANUFACTURERS: u16 = 5;

/// Categories per manufacturer.
pub const CATEGORIES_PER_MANUFACTURER: u16 = 5;

/// Brands per category.
pub const BRANDS_PER_CATEGORY: u16 = 40;

/// Number of brands, 1,000.
pub const BRANDS: u16 = MANUFACTURERS * CATEGORIES_PER_MANUFACTURER * BRANDS_PER_CATEGORY;

/// The three syllables of a part's type.
pub const TYPE_SYLLABLES: ([&str; 6], [&str; 5], [&str; 5]) = (
    ["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    ["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    ["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
);

/// Number of part types, 150.
pub const TYPES: usize = 6 * 5 * 5;

/// The two syllables of a container.
pub const CONTAINER_SYLLABLES: ([&str; 5], [&str; 8]) = (
    ["SM", "LG", "MED", "JUMBO", "WRAP"],
    ["CASE", "BOX", "BAG", "JAR", "PACK", "PKG", "CAN", "DRUM"],
);

/// Number of containers, 40.
pub const CONTAINERS: usize = 5 * 8;

/// The colours parts are named by: the 92 of TPC-H (SSB says 94, and lists none).
#[rustfmt::skip]
pub const COLORS: [&str; 92] = [
    "almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue",
    "blush", "brown", "burlywood", "burnished", "chartreuse", "chiffon", "chocolate", "coral",
    "cornflower", "cornsilk", "cream", "cyan", "dark", "deep", "dim", "dodger", "drab",
    "firebrick", "floral", "forest", "frosted", "gainsboro", "ghost", "goldenrod", "green",
    "grey", "honeydew", "hot", "indian", "ivory", "khaki", "lace", "lavender", "lawn", "lemon",
    "light", "lime", "linen", "magenta", "maroon", "medium", "metallic", "midnight", "mint",
    "misty", "moccasin", "navajo", "navy", "olive", "orange", "orchid", "pale", "papaya",
    "peach", "peru", "pink", "plum", "powder", "puff", "purple", "red", "rose", "rosy", "royal",
    "saddle", "salmon", "sandy", "seashell", "sienna", "sky", "slate", "smoke", "snow", "spring",
    "steel", "tan", "thistle", "tomato", "turquoise", "violet", "wheat", "white", "yellow",
];

/// The nation a city lies in.
pub fn nation_of(city: u8) -> u8 {
    city / CITIES_PER_NATION
}

/// The region a nation lies in.
pub fn region_of(nation: u8) -> u8 {
    NATIONS[nation as usize].1
}

/// A city's name: the first nine characters of its nation, filled up with blanks,
/// and a digit, such as `UNITED KI1` or `CHINA    4`.
pub fn city(city: u8) -> String {
    let nation = NATIONS[nation_of(city) as usize].0;
    let prefix = &nation[..nation.len().min(9)];
    format!("{prefix:9}{}", city % CITIES_PER_NATION)
}

/// A manufacturer's name, such as `MFGR#1`; the code counts from 0, the name from 1.
pub fn manufacturer(manufacturer: u16) -> String {
    format!("MFGR#{}", manufacturer + 1)
}

/// A category's name, such as `MFGR#12`: the manufacturer's and a digit.
pub fn category(category: u16) -> String {
    let maker = manufacturer(category / CATEGORIES_PER_MANUFACTURER);
    format!("{maker}{}", category % CATEGORIES_PER_MANUFACTURER + 1)
}

/// A brand's name, such as `MFGR#1239`: the category's and a number 1 to 40.
pub fn brand(brand: u16) -> String {
    let group = category(brand / BRANDS_PER_CATEGORY);
    format!("{group}{}", brand % BRANDS_PER_CATEGORY + 1)
}

/// A part type's name, such as `STANDARD ANODIZED TIN`.
pub fn part_type(code: u8) -> String {
    let (first, second, third) = TYPE_SYLLABLES;
    let code = code as usize;
    format!(
        "{} {} {}",
        first[code / 25],
        second[code / 5 % 5],
        third[code % 5]
    )
}

/// A container's name, such as `JUMBO BOX`.
pub fn container(code: u8) -> String {
    let (first, second) = CONTAINER_SYLLABLES;
    format!("{} {}", first[code as usize / 8], second[code as usize % 8])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn domains_have_the_specified_cardinalities_and_widths() {
        let check = |values: Vec<String>, cardinality: usize, width: usize| {
            assert!(values.iter().all(|value| value.len() <= width));
            let distinct: HashSet<_> = values.into_iter().collect();
            assert_eq!(distinct.len(), cardinality);
        };
        check((0..250).map(city).collect(), 250, 10);
        check((0..5).map(manufacturer).collect(), 5, 6);
        check((0..25).map(category).collect(), 25, 7);
        check((0..BRANDS).map(brand).collect(), 1_000, 9);
        check((0..150).map(part_type).collect(), 150, 25);
        check((0..40).map(container).collect(), 40, 10);
        check(COLORS.map(str::to_owned).to_vec(), 92, 11);
        check(NATIONS.map(|(n, _)| n.to_owned()).to_vec(), 25, 15);
        check(REGIONS.map(str::to_owned).to_vec(), 5, 12);
        check(PRIORITIES.map(str::to_owned).to_vec(), 5, 15);
        check(SHIP_MODES.map(str::to_owned).to_vec(), 7, 10);
        check(SEGMENTS.map(str::to_owned).to_vec(), 5, 10);
    }

    #[test]
    fn every_region_has_five_nations() {
        for region in 0..5 {
            assert_eq!(NATIONS.iter().filter(|(_, r)| *r == region).count(), 5);
        }
    }

    #[test]
    fn names_the_queries_ask_for_exist() {
        assert!((0..250).any(|code| city(code) == "UNITED KI1"));
        assert_eq!(city(184), "CHINA    4");
        assert!((0..BRANDS).any(|code| brand(code) == "MFGR#2239"));
        assert_eq!(brand(0), "MFGR#111");
        assert_eq!(part_type(0), "STANDARD ANODIZED TIN");
        assert_eq!(part_type(149), "PROMO BRUSHED COPPER");
        assert_eq!(container(39), "WRAP DRUM");
    }
}

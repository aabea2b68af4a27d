//! The date dimension: 2,556 days from 1992-01-01 to 1998-12-30.
//!
//! Everything follows from the day's index, so the dimension has no seed. Where
//! the specification gives only a domain, the rule is:
//!
//! * weeks run from Sunday (day 1) to Saturday (day 7, `d_lastdayinweekfl`);
//! * `d_weeknuminyear` counts seven-day weeks from 1 January: days 1–7 are week 1,
//!   so every week but the last of a year has seven days, and the domain is the
//!   specified 1..=53;
//! * selling seasons are whole months (Winter 1–3, Spring 4, Summer 5–8, Fall
//!   9–10, Christmas 11–12) and holidays are ten fixed days of the year.

/// Days in the dimension: "7 years of days".
pub const DAYS: usize = 2_556;

/// Days on which orders are placed: the first 2,406, until 1998-08-02. TPC-H ends
/// order dates 151 days before 1998-12-31 so that every later date of an order's
/// life exists.
pub const ORDER_DAYS: usize = 2_406;

const YEAR_FIRST: i32 = 1992;

/// Sunday is 0; 1992-01-01 was a Wednesday.
const WEEKDAY_OF_FIRST_DAY: usize = 3;

const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAY_NAMES: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Holidays as (month, day).
const HOLIDAYS: [(i32, i32); 10] = [
    (1, 1),
    (2, 20),
    (4, 20),
    (5, 20),
    (7, 20),
    (8, 20),
    (9, 20),
    (10, 20),
    (11, 20),
    (12, 24),
];

/// The key (yyyymmdd) of every day, by index.
pub static DATEKEYS: [i32; DAYS] = datekeys();

/// One day of the dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// Days since 1992-01-01.
    pub index: usize,
    /// 1992..=1998.
    pub year: i32,
    /// 1..=12.
    pub month: i32,
    /// 1..=31.
    pub day: i32,
    /// 1..=366.
    pub day_in_year: i32,
}

impl Day {
    /// The day with this index, `index < DAYS`.
    pub fn new(index: usize) -> Self {
        let key = DATEKEYS[index];
        let (year, month, day) = (key / 10_000, key / 100 % 100, key % 100);
        let before: i32 = (1..month).map(|month| days_in_month(year, month)).sum();
        Self {
            index,
            year,
            month,
            day,
            day_in_year: before + day,
        }
    }

    /// `d_datekey`: yyyymmdd.
    pub fn key(&self) -> i32 {
        DATEKEYS[self.index]
    }

    /// `d_date`, such as `December 22, 1998`.
    pub fn date(&self) -> String {
        format!("{} {}, {}", self.month_name(), self.day, self.year)
    }

    /// `d_dayofweek`, Sunday to Saturday.
    pub fn weekday_name(&self) -> &'static str {
        WEEKDAY_NAMES[self.day_in_week() as usize - 1]
    }

    /// `d_month`, January to December.
    pub fn month_name(&self) -> &'static str {
        MONTH_NAMES[self.month as usize - 1]
    }

    /// `d_yearmonthnum`: yyyymm.
    pub fn year_month_num(&self) -> i32 {
        self.year * 100 + self.month
    }

    /// `d_yearmonth`, such as `Dec1997`.
    pub fn year_month(&self) -> String {
        format!("{}{}", &self.month_name()[..3], self.year)
    }

    /// `d_daynuminweek`, 1 (Sunday) to 7 (Saturday).
    pub fn day_in_week(&self) -> i32 {
        ((WEEKDAY_OF_FIRST_DAY + self.index) % 7) as i32 + 1
    }

    /// `d_weeknuminyear`, 1..=53.
    pub fn week_in_year(&self) -> i32 {
        (self.day_in_year - 1) / 7 + 1
    }

    /// `d_sellingseason`.
    pub fn season(&self) -> &'static str {
        match self.month {
            1..=3 => "Winter",
            4 => "Spring",
            5..=8 => "Summer",
            9..=10 => "Fall",
            _ => "Christmas",
        }
    }

    /// `d_lastdayinweekfl`.
    pub fn is_last_in_week(&self) -> bool {
        self.day_in_week() == 7
    }

    /// `d_lastdayinmonthfl`.
    pub fn is_last_in_month(&self) -> bool {
        self.day == days_in_month(self.year, self.month)
    }

    /// `d_holidayfl`.
    pub fn is_holiday(&self) -> bool {
        HOLIDAYS.contains(&(self.month, self.day))
    }

    /// `d_weekdayfl`: Monday to Friday.
    pub fn is_weekday(&self) -> bool {
        (2..=6).contains(&self.day_in_week())
    }
}

const fn days_in_month(year: i32, month: i32) -> i32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        // From 1901 to 2099 every fourth year is a leap year.
        2 if year % 4 == 0 => 29,
        2 => 28,
        _ => 31,
    }
}

const fn datekeys() -> [i32; DAYS] {
    let mut keys = [0; DAYS];
    let (mut year, mut month, mut day) = (YEAR_FIRST, 1, 1);
    let mut index = 0;
    while index < DAYS {
        keys[index] = year * 10_000 + month * 100 + day;
        day += 1;
        if day > days_in_month(year, month) {
            day = 1;
            month += 1;
        }
        if month > 12 {
            month = 1;
            year += 1;
        }
        index += 1;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(key: i32) -> Day {
        let index = DATEKEYS.iter().position(|&k| k == key).unwrap();
        Day::new(index)
    }

    #[test]
    fn ends_and_leap_days() {
        assert_eq!(DATEKEYS[0], 19_920_101);
        assert_eq!(DATEKEYS[DAYS - 1], 19_981_230);
        assert_eq!(DATEKEYS[ORDER_DAYS - 1], 19_980_802);
        assert!(DATEKEYS.contains(&19_920_229) && DATEKEYS.contains(&19_960_229));
        assert!(!DATEKEYS.contains(&19_940_229));
        assert!(DATEKEYS.is_sorted());
    }

    #[test]
    fn known_days() {
        // Days that a wall calendar of the time shows.
        for (key, weekday) in [
            (19_920_101, "Wednesday"),
            (19_920_229, "Saturday"),
            (19_940_704, "Monday"),
            (19_960_229, "Thursday"),
            (19_970_831, "Sunday"),
            (19_981_225, "Friday"),
        ] {
            assert_eq!(day(key).weekday_name(), weekday, "{key}");
        }
        let christmas = day(19_971_224);
        assert_eq!(christmas.date(), "December 24, 1997");
        assert_eq!(christmas.year_month(), "Dec1997");
        assert_eq!(christmas.year_month_num(), 199_712);
        assert_eq!(christmas.day_in_year, 358);
        assert_eq!(christmas.season(), "Christmas");
        assert!(christmas.is_holiday() && christmas.is_weekday());
        assert!(day(19_960_229).is_last_in_month() && !day(19_960_228).is_last_in_month());
        assert!(day(19_970_830).is_last_in_week() && !day(19_970_830).is_weekday());
    }

    #[test]
    fn weeks_have_seven_days_and_years_add_up() {
        let days: Vec<Day> = (0..DAYS).map(Day::new).collect();
        let in_week_six = days
            .iter()
            .filter(|day| day.year == 1994 && day.week_in_year() == 6);
        assert_eq!(in_week_six.count(), 7);
        assert_eq!(days.iter().map(Day::week_in_year).max(), Some(53));
        for (year, length) in [(1992, 366), (1993, 365), (1996, 366), (1998, 364)] {
            let count = days.iter().filter(|day| day.year == year).count();
            assert_eq!(count, length, "{year}");
        }
        assert_eq!(day(19_961_231).day_in_year, 366);
        assert!(days.iter().all(|day| day.date().len() <= 18));
    }
}

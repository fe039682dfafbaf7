//! The moment of an answer as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`, and the line of it that
//! all answers of one second share.

/// The length of a date in bytes. It is the same for every date.
pub const DATE_BYTES: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"]; // 1970 began on a Thursday.
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const SECONDS_PER_DAY: u64 = 86_400;
/// 9999-12-31 23:59:59: four digits is all that the form has for a year.
const LAST_SECOND: u64 = 253_402_300_799;

/// A moment in the form that RFC 9110 calls IMF-fixdate.
///
/// `unix_seconds` counts from 1970-01-01 00:00:00 GMT. What is later than the year 9999 is written as
/// its last second, since the form has no fifth digit.
pub fn format(unix_seconds: u64) -> [u8; DATE_BYTES] {
    let seconds = unix_seconds.min(LAST_SECOND);
    let (days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (year, month, day) = civil(days);
    let mut date = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    date[0..3].copy_from_slice(DAYS[(days % 7) as usize]);
    two_digits(&mut date[5..7], day);
    date[8..11].copy_from_slice(MONTHS[month as usize - 1]);
    two_digits(&mut date[12..14], year / 100);
    two_digits(&mut date[14..16], year % 100);
    two_digits(&mut date[17..19], second / 3600);
    two_digits(&mut date[20..22], second / 60 % 60);
    two_digits(&mut date[23..25], second % 60);
    date
}

/// Year, month (1–12) and day (1–31) of the day that is `days` after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last of its year and the months before it
/// have the same lengths in every year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // From 0000-03-01.
    let era = days / 146_097; // 400 years are that many days.
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

fn two_digits(at: &mut [u8], number: u64) {
    at[0] = b'0' + (number / 10) as u8;
    at[1] = b'0' + (number % 10) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known dates: the example of RFC 9110, leap days (also of a century), ends of years, the limits.
    #[test]
    fn known_dates_are_written_right() {
        for (unix_seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (1_735_689_600, "Wed, 01 Jan 2025 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&format(unix_seconds)), Ok(date));
        }
    }
}

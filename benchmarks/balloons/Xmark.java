import java.io.*;
import java.lang.management.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import javax.xml.transform.stream.StreamSource;
import net.sf.saxon.s9api.*;

/** Writes documents of auctions after XMark (Schmidt et al., VLDB 2002), and runs its queries with Saxon-HE, a command a line. */
public class Xmark {
    static final String[] WORDS = ("the of and gold to in that was his he it with is for as had you not be her on at by which have or "
        + "from this him but all she they were my are me one their so an said them we who would been will no when there if more out up "
        + "into do any your what has man could other than our some very time upon about may its only now like little then can should made "
        + "did us such great before must two these see know over much down after first good men silver ring crown horse castle").split(" ");
    static final String[] REGIONS = {"africa", "asia", "australia", "europe", "namerica", "samerica"};
    static final Random random = new Random(7);

    /** Queries 1 to 7 and 13 to 20; 8 to 12 are joins that take hours without a plan for them. */
    static final String[] QUERIES = {
        "for $b in /site/people/person[@id = 'person0'] return $b/name/text()",
        "for $b in /site/open_auctions/open_auction return <increase>{$b/bidder[1]/increase/text()}</increase>",
        "for $b in /site/open_auctions/open_auction where $b/bidder[1]/increase * 2 <= $b/bidder[last()]/increase "
            + "return <increase first='{$b/bidder[1]/increase}' last='{$b/bidder[last()]/increase}'/>",
        "for $b in /site/open_auctions/open_auction where some $one in $b/bidder/personref[@person = 'person20'], "
            + "$two in $b/bidder/personref[@person = 'person51'] satisfies $one << $two return <history>{$b/reserve/text()}</history>",
        "count(for $i in /site/closed_auctions/closed_auction where $i/price >= 40 return $i/price)",
        "for $b in //site/regions return count($b//item)",
        "for $p in /site return count($p//description) + count($p//annotation) + count($p//emailaddress)",
        "for $i in /site/regions/australia/item return <item name='{$i/name}'>{$i/description}</item>",
        "for $i in /site//item where contains(string($i/description), 'gold') return $i/name/text()",
        "for $a in /site/closed_auctions/closed_auction/annotation/description/parlist/listitem/parlist/listitem/text/emph/keyword/text() "
            + "return <text>{$a}</text>",
        "for $a in /site/closed_auctions/closed_auction where not(empty($a/annotation/description/parlist/listitem/parlist/listitem/text/"
            + "emph/keyword/text())) return <person id='{$a/seller/@person}'/>",
        "for $p in /site/people/person where empty($p/homepage/text()) return <person name='{$p/name}'/>",
        "declare function local:convert($v as xs:decimal?) as xs:decimal? { 2.20371 * $v }; "
            + "for $i in /site/open_auctions/open_auction return local:convert(zero-or-one($i/reserve))",
        "for $b in /site/regions//item order by string($b/location) return <item name='{$b/name}'>{$b/location/text()}</item>",
        "<result><preferred>{count(/site/people/person/profile[@income >= 100000])}</preferred><standard>{count(/site/people/person/"
            + "profile[@income < 100000 and @income >= 30000])}</standard><challenge>{count(/site/people/person/profile[@income < 30000])}"
            + "</challenge><na>{count(/site/people/person[empty(profile/@income)])}</na></result>",
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Processor processor = new Processor(false);
        XdmNode document = null;
        List<XQueryExecutable> queries = new ArrayList<>();
        for (String query : QUERIES) queries.add(processor.newXQueryCompiler().compile(query));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            long began = System.nanoTime(), collected = collected();
            long result = 0;
            switch (words[0]) {
                case "write":
                    write(Path.of(words[1]), Long.parseLong(words[2]) << 20);
                    break;
                case "load":
                    document = processor.newDocumentBuilder().build(new StreamSource(new File(words[1])));
                    break;
                case "run":
                    for (int round = 0; round < Integer.parseInt(words[1]); round++) {
                        for (XQueryExecutable query : queries) {
                            XQueryEvaluator evaluator = query.load();
                            evaluator.setContextItem(document);
                            result += evaluator.evaluate().size();
                        }
                    }
                    break;
                case "live":
                    System.gc();
                    Runtime runtime = Runtime.getRuntime();
                    result = (runtime.totalMemory() - runtime.freeMemory()) >> 20;
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println("done " + seconds + " " + (collected() - collected) / 1e3 + " " + result);
            System.out.flush();
        }
    }

    /** Milliseconds in which collections stopped or accompanied the program. */
    static long collected() {
        long sum = 0;
        for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans()) sum += Math.max(0, bean.getCollectionTime());
        return sum;
    }

    static String words(int count) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < count; at++) text.append(at == 0 ? "" : " ").append(WORDS[random.nextInt(WORDS.length)]);
        return text.toString();
    }

    static String text() {
        return "<text>" + words(12) + "<emph><keyword>" + words(2) + "</keyword></emph>" + words(12) + "</text>";
    }

    static String description() {
        if (random.nextInt(3) > 0) return "<description>" + text() + "</description>";
        return "<description><parlist><listitem><parlist><listitem>" + text() + "</listitem></parlist></listitem></parlist></description>";
    }

    static String person() {
        return "person" + random.nextInt(25000);
    }

    /** About so many bytes, a third of it items and a half auctions. */
    static void write(Path path, long bytes) throws IOException {
        long units = bytes / 2400;
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(path, StandardCharsets.UTF_8))) {
            out.print("<site><regions>");
            for (String region : REGIONS) {
                out.print("<" + region + ">");
                for (long at = 0; at < units / 3; at++) {
                    out.print("<item id='" + region + at + "'><location>" + words(2) + "</location><quantity>" + (1 + random.nextInt(5))
                        + "</quantity><name>" + words(3) + "</name><payment>Cash</payment>" + description() + "<mailbox><mail><date>07/21/2000"
                        + "</date>" + text() + "</mail></mailbox></item>");
                }
                out.print("</" + region + ">");
            }
            out.print("</regions><people>");
            for (long at = 0; at < units; at++) {
                out.print("<person id='person" + at + "'><name>" + words(2) + "</name><emailaddress>mailto:" + at + "@example.org</emailaddress>"
                    + (random.nextBoolean() ? "<homepage>http://www.example.org/~" + at + "</homepage>" : "")
                    + (random.nextInt(4) > 0 ? "<profile income='" + random.nextInt(150000) + "'><interest category='category1'/></profile>" : "")
                    + "</person>");
            }
            out.print("</people><open_auctions>");
            for (long at = 0; at < units; at++) {
                out.print("<open_auction id='open" + at + "'><initial>" + random.nextInt(100) + "</initial>"
                    + (random.nextBoolean() ? "<reserve>" + random.nextInt(1000) + "</reserve>" : ""));
                for (int bids = 1 + random.nextInt(5); bids > 0; bids--) {
                    out.print("<bidder><date>03/12/2001</date><personref person='" + person() + "'/><increase>" + 1.5 * random.nextInt(20)
                        + "</increase></bidder>");
                }
                out.print("<seller person='" + person() + "'/><annotation>" + description() + "</annotation></open_auction>");
            }
            out.print("</open_auctions><closed_auctions>");
            for (long at = 0; at < units; at++) {
                out.print("<closed_auction><seller person='" + person() + "'/><buyer person='" + person() + "'/><price>" + random.nextInt(200)
                    + "</price><date>11/02/2001</date><annotation>" + description() + "</annotation></closed_auction>");
            }
            out.print("</closed_auctions></site>");
        }
    }
}

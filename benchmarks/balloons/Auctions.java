import java.io.*;
import java.util.*;
import javax.xml.parsers.*;
import javax.xml.xpath.*;
import org.w3c.dom.*;

/** Keeps memory, makes garbage, and evaluates XPath expressions on a document of auctions, a command a line. */
public class Auctions {
    static final Random random = new Random(7);

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        List<byte[]> kept = new ArrayList<>();
        Document document = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            int amount = Integer.parseInt(words[1]);
            long began = System.nanoTime();
            switch (words[0]) {
                case "garbage": {
                    // Alive all together, so that the heap has to have them.
                    List<byte[]> garbage = new ArrayList<>();
                    fill(garbage, amount);
                    break;
                }
                case "keep":
                    fill(kept, amount);
                    break;
                case "document":
                    document = document(amount);
                    break;
                case "query":
                    for (int round = 0; round < amount; round++) query(document);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            System.out.println("done " + (System.nanoTime() - began) / 1e9);
            System.out.flush();
        }
    }

    static void fill(List<byte[]> list, int mib) {
        for (int i = 0; i < 10 * mib; i++) list.add(new byte[(1 << 20) / 10]);
    }

    /** People, items and auctions, as in XMark; a tree of about so many MiB. */
    static Document document(int mib) throws Exception {
        Document document = DocumentBuilderFactory.newInstance().newDocumentBuilder().newDocument();
        Element site = document.createElement("site");
        document.appendChild(site);
        // An auction with its bids takes some 3 kB as a tree.
        for (int i = 0; i < mib * 340; i++) {
            Element auction = document.createElement("auction");
            auction.setAttribute("id", "a" + i);
            for (int bid = 0; bid < 4; bid++) {
                Element bidder = document.createElement("bidder");
                bidder.setAttribute("person", "p" + random.nextInt(1000));
                Element price = document.createElement("price");
                price.setTextContent(Integer.toString(random.nextInt(100000)));
                bidder.appendChild(price);
                auction.appendChild(bidder);
            }
            site.appendChild(auction);
        }
        return document;
    }

    static void query(Document document) throws Exception {
        XPath path = XPathFactory.newInstance().newXPath();
        String[] expressions = {
            "count(/site/auction[bidder[1]/price > 50000])",
            "sum(/site/auction/bidder[last()]/price)",
            "count(/site/auction/bidder[@person = 'p7'])",
        };
        for (String expression : expressions) path.evaluate(expression, document);
    }
}

// What Java and Kafka make of names: lines `rules TAB file-or-name` in, the user out.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Names {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new java.io.PrintStream(System.out, true, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            try {
                out.println(SslPrincipalMapper.fromRules(parts[0]).getName(name(parts[1])));
            } catch (Exception error) {
                out.println("!");
            }
        }
    }

    static String name(String given) throws Exception {
        if (!given.startsWith("/")) {
            return given;
        }
        var factory = CertificateFactory.getInstance("X.509");
        var found = (X509Certificate) factory.generateCertificate(new FileInputStream(given));
        return found.getSubjectX500Principal().getName();
    }
}

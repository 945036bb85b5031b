// Administers a topic of several partitions as a whole, over HTTPS and with a password:
// a line "<what> <answer>" for each call, or "refused <what> <status> <reason>".
// java -cp "<jars>/*" WholeTopic.java URL AUTHORITY-FILE USER PASSWORD TOPIC
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.MessageId;

public class WholeTopic {
  static void call(String what, Callable<Object> request) throws Exception {
    try {
      System.out.println(what + " " + request.call());
    } catch (PulsarAdminException error) {
      System.out.println("refused " + what + " " + error.getStatusCode() + " " + error.getMessage());
    }
  }

  public static void main(String[] words) throws Exception {
    String topic = words[4];
    String login = "{\"userId\":\"" + words[2] + "\",\"password\":\"" + words[3] + "\"}";
    try (PulsarAdmin admin = PulsarAdmin.builder()
        .serviceHttpUrl(words[0])
        .tlsTrustCertsFilePath(words[1])
        .authentication("org.apache.pulsar.client.impl.auth.AuthenticationBasic", login)
        .build()) {
      call("create", () -> { admin.topics().createPartitionedTopic(topic, 4); return 4; });
      call("subscribe", () -> { admin.topics().createSubscription(topic, "readers", MessageId.latest); return ""; });
      call("partitions", () -> admin.topics().getPartitionedStats(topic, true).getPartitions().size());
      call("owners", () -> admin.topics().getPartitionedStats(topic, true).getPartitions().values().stream()
          .map(each -> each.getOwnerBroker()).distinct().count());
      call("subscriptions", () -> new TreeSet<>(admin.topics().getSubscriptions(topic)));
      call("internal", () -> admin.topics().getPartitionedInternalStats(topic).partitions.size());
      call("skip", () -> { admin.topics().skipAllMessages(topic, "readers"); return ""; });
      call("delete", () -> { admin.topics().deleteSubscription(topic, "readers"); return ""; });
      for (int number = 0; number < 4; number++) { // whose first partitions are at one node or the other
        String grown = topic + number;
        call("grown-" + number, () -> {
          admin.topics().createPartitionedTopic(grown, 1);
          admin.topics().createSubscription(grown, "readers", MessageId.latest, false, Map.of("by", "us"));
          admin.topics().updatePartitionedTopic(grown, 5);
          return admin.topics().getPartitionedStats(grown, true).getPartitions().values().stream()
              .filter(each -> each.getSubscriptions().containsKey("readers"))
              .filter(each -> each.getSubscriptions().get("readers").getSubscriptionProperties().containsKey("by"))
              .count();
        });
      }
      call("left", () -> admin.topics().getSubscriptions(topic));
    }
  }
}

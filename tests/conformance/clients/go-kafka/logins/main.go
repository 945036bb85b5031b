// Logins by franz-go and sarama: each line of standard input is an attempt in JSON, which is
// answered by one line: "ok" after one record was acknowledged, "refused" for credentials that the
// server did not accept, or the text of another error. The argument names the library.
package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const deadline = 15 * time.Second

type attempt struct {
	Address, Topic, Mechanism, User, Password, Token string
	Authority, Certificate, Key                      string // PEM files; TLS where an authority is named
}

func (a attempt) tls() *tls.Config {
	if a.Authority == "" {
		return nil
	}
	pem, err := os.ReadFile(a.Authority)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots}
	if a.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(a.Certificate, a.Key)
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// --- franz-go -----------------------------------------------------------------------------------

func (a attempt) mechanism() sasl.Mechanism {
	switch a.Mechanism {
	case "PLAIN":
		return plain.Auth{User: a.User, Pass: a.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: a.Token}.AsMechanism()
	}
	return nil
}

func franz(a attempt) error {
	options := []kgo.Opt{kgo.SeedBrokers(a.Address), kgo.RequestRetries(0), kgo.DialTLSConfig(a.tls())}
	if a.Authority == "" {
		options = options[:2]
	}
	if mechanism := a.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	record := &kgo.Record{Topic: a.Topic, Value: []byte("x")}
	return client.ProduceSync(ctx, record).FirstErr()
}

// --- sarama, which leaves SCRAM to others -----------------------------------------------------------

type exchange struct {
	hash                 func() hash.Hash
	user, password, bare string
	signature            []byte
	step                 int
}

func (e *exchange) Begin(user, password, _ string) error {
	escape := strings.NewReplacer("=", "=3D", ",", "=2C")
	e.user, e.password = escape.Replace(user), password
	return nil
}

func (e *exchange) Done() bool { return e.step > 2 }

func (e *exchange) Step(challenge string) (string, error) {
	e.step++
	switch e.step {
	case 1:
		e.bare = "n=" + e.user + ",r=a-nonce-of-the-client"
		return "n,," + e.bare, nil
	case 2:
		return e.final(challenge)
	}
	if challenge != "v="+base64.StdEncoding.EncodeToString(e.signature) {
		return "", fmt.Errorf("the server does not know the password: %s", challenge)
	}
	return "", nil
}

func (e *exchange) final(challenge string) (string, error) {
	words := map[string]string{}
	for _, part := range strings.Split(challenge, ",") {
		name, value, _ := strings.Cut(part, "=")
		words[name] = value
	}
	salt, err := base64.StdEncoding.DecodeString(words["s"])
	if err != nil {
		return "", err
	}
	rounds, err := strconv.Atoi(words["i"])
	if err != nil {
		return "", err
	}
	salted, err := pbkdf2.Key(e.hash, e.password, salt, rounds, e.hash().Size())
	if err != nil {
		return "", err
	}
	client := e.sign(salted, "Client Key")
	stored := e.hash()
	stored.Write(client)
	bare := "c=biws,r=" + words["r"]
	signed := e.bare + "," + challenge + "," + bare
	proof := e.sign(stored.Sum(nil), signed)
	for at := range proof {
		proof[at] ^= client[at]
	}
	e.signature = e.sign(e.sign(salted, "Server Key"), signed)
	return bare + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}

func (e *exchange) sign(key []byte, text string) []byte {
	mac := hmac.New(e.hash, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

type provider string

func (p provider) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(p)}, nil
}

func ofSarama(a attempt) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 0
	config.Metadata.Retry.Max = 0
	config.Net.TLS.Config = a.tls()
	config.Net.TLS.Enable = a.Authority != ""
	if a.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(a.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = a.User, a.Password
		config.Net.SASL.TokenProvider = provider(a.Token)
		made := map[string]func() hash.Hash{"SCRAM-SHA-256": sha256.New, "SCRAM-SHA-512": sha512.New}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &exchange{hash: made[a.Mechanism]}
		}
	}
	producer, err := sarama.NewSyncProducer([]string{a.Address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: a.Topic, Value: sarama.StringEncoder("x")})
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return "refused"
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	login := map[string]func(attempt) error{"franz-go": franz, "sarama": ofSarama}[os.Args[1]]
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var given attempt
		check(json.Unmarshal(lines.Bytes(), &given))
		fmt.Println(outcome(login(given)))
	}
}

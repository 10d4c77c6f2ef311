package jwt

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/authentication/jwt/jwttest"
)

const audience = "cluster"

// configure returns an AuthenticationConfiguration of issuers, with further fields
// of each.
func configure(fields string, issuers ...*jwttest.Issuer) string {
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"
	for _, i := range issuers {
		config += fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [%s]\n    certificateAuthority: |\n      %s\n%s", i.URL, audience,
			strings.ReplaceAll(strings.TrimSpace(i.Authority), "\n", "\n      "), fields)
	}
	return config
}

const bySubject = `  claimMappings:
    username: {claim: sub, prefix: "oidc:"}
`

// start returns an authenticator whose issuers have answered.
func start(t *testing.T, content, file string) *Authenticator {
	t.Helper()
	config, err := Parse([]byte(content))
	if err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	a, err := New(Config{
		Initial: config, File: file, Content: []byte(content), SigningAlgorithms: SigningAlgorithms(),
		OwnIssuers: []string{"https://own"}, Audiences: authenticator.Audiences{"api"}, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	eventually(t, "the issuers answer", func() bool { return a.current.Load().healthy() == nil })
	return a
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// who returns the user of a token in one line: "rejected" for an error, and "unknown"
// if the authenticator has no opinion.
func who(t *testing.T, a *Authenticator, token string) string {
	t.Helper()
	response, ok, err := a.AuthenticateToken(authenticator.WithAudiences(t.Context(), authenticator.Audiences{"api"}), token)
	switch {
	case err != nil:
		return "rejected"
	case !ok:
		return "unknown"
	}
	return fmt.Sprint(response.User.GetName(), " ", response.User.GetGroups())
}

// claims returns those of a valid token, with further pairs that replace them; nil
// removes a claim.
func claims(pairs ...any) map[string]any {
	c := map[string]any{"sub": "ann", "aud": audience, "exp": time.Now().Add(time.Hour).Unix()}
	for pair := range slices.Chunk(pairs, 2) {
		if c[pair[0].(string)] = pair[1]; pair[1] == nil {
			delete(c, pair[0].(string))
		}
	}
	return c
}

func TestTheUserOfAToken(t *testing.T) {
	issuer, other := jwttest.New(t), jwttest.New(t)
	a := start(t, configure(bySubject, issuer), "")
	// unsigned returns a token with the algorithm none.
	unsigned := func(c map[string]any) string {
		encode := base64.RawURLEncoding.EncodeToString
		payload := strings.Split(issuer.Token(c), ".")[1]
		return encode([]byte(`{"alg":"none"}`)) + "." + payload + "."
	}
	cut := func(token string) string { return token[:len(token)-4] + "AAAA" }
	for _, test := range []struct{ rule, token, want string }{
		{"a valid token has the user of its claim", issuer.Token(claims()), "oidc:ann []"},
		{"an audience may be one of several", issuer.Token(claims("aud", []string{"x", audience})), "oidc:ann []"},
		{"an expired token is rejected", issuer.Token(claims("exp", time.Now().Add(-time.Minute).Unix())), "rejected"},
		{"a token that is not valid yet is rejected", issuer.Token(claims("nbf", time.Now().Add(time.Hour).Unix())), "rejected"},
		{"a token for another audience is rejected", issuer.Token(claims("aud", "vault")), "rejected"},
		{"a token without audience is rejected", issuer.Token(claims("aud", nil)), "rejected"},
		{"a token without the claim is rejected", issuer.Token(claims("sub", nil)), "rejected"},
		{"a token that is signed by another key is rejected", other.Token(claims("iss", issuer.URL)), "rejected"},
		{"a token without signature is rejected", unsigned(claims()), "rejected"},
		{"a token whose signature is changed is rejected", cut(issuer.Token(claims())), "rejected"},
		{"a token of another issuer is unknown", other.Token(claims()), "unknown"},
		{"a token that is none is unknown", "nonsense", "unknown"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := who(t, a, test.token); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestExpressionsMapClaims(t *testing.T) {
	issuer, second := jwttest.New(t), jwttest.New(t)
	a := start(t, configure(`  claimValidationRules:
  - {expression: "claims.org == 'svc'", message: "another organization"}
  claimMappings:
    username: {expression: "'u-' + claims.sub"}
    groups: {expression: "claims.roles"}
  userValidationRules:
  - {expression: "!user.username.startsWith('u-system')", message: "reserved"}
`, issuer, second), "")
	for _, test := range []struct{ rule, token, want string }{
		{"the user and groups are those of the expressions", issuer.Token(claims("org", "svc", "roles", []string{"dev", "ops"})), "u-ann [dev ops]"},
		{"each issuer is accepted", second.Token(claims("org", "svc", "roles", []string{})), "u-ann []"},
		{"a claim that its rule refuses is rejected", issuer.Token(claims("org", "else", "roles", []string{})), "rejected"},
		{"a user that its rule refuses is rejected", issuer.Token(claims("org", "svc", "sub", "system:admin", "roles", []string{})), "rejected"},
		{"a token of one issuer that another has signed is rejected", second.Token(claims("iss", issuer.URL, "org", "svc", "roles", []string{})), "rejected"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := who(t, a, test.token); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestKeysThatAnIssuerRotatesAreRead(t *testing.T) {
	issuer := jwttest.New(t)
	a := start(t, configure(bySubject, issuer), "")
	before := issuer.Token(claims())
	if got := who(t, a, before); got != "oidc:ann []" {
		t.Fatalf("before: %s", got)
	}
	issuer.Rotate()
	// For a moment after keys have been read, the library answers with them without another
	// request.
	eventually(t, "a token of the new key is accepted", func() bool { return who(t, a, issuer.Token(claims())) == "oidc:ann []" })
	if got := who(t, a, before); got != "rejected" {
		t.Errorf("a token of the old key: %s", got)
	}
}

func TestAChangedFileIsReadAndABadOneIsNot(t *testing.T) {
	first, second := jwttest.New(t), jwttest.New(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	write := func(content string) {
		t.Helper()
		next := file + ".next"
		if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil { // as config maps do
			t.Fatal(err)
		}
	}
	initial := configure(bySubject, first)
	write(initial)
	a := start(t, initial, file)
	running := make(chan struct{})
	go func() { defer close(running); a.Run(t.Context()) }()
	t.Cleanup(func() { <-running })

	write(configure(bySubject, second))
	eventually(t, "the first reload is counted", func() bool { return reloads(t, "success") > 0 })
	eventually(t, "the second issuer is accepted", func() bool { return who(t, a, second.Token(claims())) == "oidc:ann []" })
	if got := who(t, a, first.Token(claims())); got != "unknown" {
		t.Errorf("a token of the first issuer, after the change: %s", got)
	}
	for rule, bad := range map[string]string{
		"malformed":                     "jwt: [",
		"with an unknown field":         configure(bySubject, first) + "nope: true\n",
		"with an expression that fails": configure("  claimMappings:\n    username: {expression: '(('}\n", first),
		"with another anonymous":        configure(bySubject, first) + "anonymous: {enabled: false}\n",
		"of the server's own issuer":    strings.ReplaceAll(configure(bySubject, first), first.URL, "https://own"),
		"of another kind":               "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n",
	} {
		if retry, err := a.use(t.Context(), []byte(bad)); err == nil || retry {
			t.Errorf("a file %s: %v, %v", rule, retry, err)
		}
		if got := who(t, a, second.Token(claims())); got != "oidc:ann []" {
			t.Errorf("after a file %s: %s", rule, got)
		}
	}
	failed, succeeded := reloads(t, "failure"), reloads(t, "success")
	write("jwt: [")
	eventually(t, "the failure is counted", func() bool { return reloads(t, "failure") == failed+1 })
	write(initial)
	eventually(t, "the first issuer is accepted again", func() bool { return who(t, a, first.Token(claims())) == "oidc:ann []" })
	eventually(t, "the reload is counted", func() bool { return reloads(t, "success") == succeeded+1 })
}

// reloads returns the metric of reloads with a status.
func reloads(t *testing.T, status string) float64 {
	t.Helper()
	counts, err := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer,
		"apiserver_authentication_config_controller_automatic_reloads_total", map[string]string{}, "status")
	if err != nil {
		return 0 // nothing has been counted
	}
	return counts[status]
}

func TestFlagsAreAConfiguration(t *testing.T) {
	issuer := jwttest.New(t)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, []byte(issuer.Authority), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		rule  string
		flags Flags
		want  string
	}{
		{"the default prefix is the issuer", Flags{UsernameClaim: "sub"}, issuer.URL + "#ann []"},
		{"the claim email has no prefix", Flags{UsernameClaim: "email"}, "ann@example.com []"},
		{"a prefix is added", Flags{UsernameClaim: "sub", UsernamePrefix: "u:", GroupsClaim: "groups", GroupsPrefix: "g:"}, "u:ann [g:dev]"},
		{"- is no prefix", Flags{UsernameClaim: "sub", UsernamePrefix: "-", RequiredClaims: map[string]string{"org": "svc"}}, "ann []"},
		{"a token without a required claim is rejected", Flags{UsernameClaim: "sub", RequiredClaims: map[string]string{"org": "other"}}, "rejected"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			test.flags.IssuerURL, test.flags.ClientID, test.flags.CAFile = issuer.URL, audience, authority
			config, err := test.flags.Config()
			if err != nil {
				t.Fatal(err)
			}
			a := start(t, configure(bySubject, issuer), "")
			next, err := a.issuersOf(config)
			if err != nil {
				t.Fatal(err)
			}
			a.current.Store(next)
			eventually(t, "the issuer answers", func() bool { return next.healthy() == nil })
			got := who(t, a, issuer.Token(claims("org", "svc", "groups", "dev", "email", "ann@example.com", "email_verified", true)))
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAnInvalidConfigurationIsRefused(t *testing.T) {
	_, err := New(Config{Initial: &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{{
		Issuer:        apiserver.Issuer{URL: "http://plain", Audiences: []string{"a"}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Expression: "(("}},
	}}}, Clock: clock.RealClock{}})
	if err == nil || !strings.Contains(err.Error(), "jwt[0].issuer.url") || !strings.Contains(err.Error(), "jwt[0].claimMappings.username.expression") {
		t.Errorf("got %v", err)
	}
}

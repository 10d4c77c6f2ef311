package authorization

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	authzconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"svc.dev/svc/apiserver/authorization/node"
	"svc.dev/svc/apiserver/yamldoc"
	"svc.dev/svc/internal/configlines"
)

// The modes of authorization.
const (
	// Node allows nodes what they need for their pods; see the package node.
	Node = "Node"
	// RBAC is the mode in which roles and bindings grant rules to users.
	RBAC = "RBAC"
	// ABAC allows what the policies of a file allow.
	ABAC = "ABAC"
	// Webhook asks a server.
	Webhook = string(authzconfig.TypeWebhook)
	// AlwaysAllow allows every request.
	AlwaysAllow = "AlwaysAllow"
	// AlwaysDeny has no opinion on any request, so that it is refused.
	AlwaysDeny = "AlwaysDeny"
)

// Modes are the values of the flag --authorization-mode.
func Modes() []string { return []string{Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny} }

// Config is the configuration of the authorizers.
type Config struct {
	// Modes are those of --authorization-mode, in order: the first that has an opinion
	// decides.
	Modes []string
	// File is that of --authorization-config: an AuthorizationConfiguration of the API
	// group apiserver.config.k8s.io. It excludes the modes and what they need.
	File string
	// PolicyFile is that of --authorization-policy-file, for the mode ABAC.
	PolicyFile string
	// Webhook is for the mode Webhook.
	Webhook WebhookConfig
	// Nodes are the features of the mode Node.
	Nodes node.Features
	// Components are the grants to components, without a mode and with RBAC.
	Components Grants
	// Own are the grants to the program that the server is part of, in every mode.
	Own Grants
}

// WebhookConfig is the configuration of the mode Webhook by flags.
type WebhookConfig struct {
	// File is a kubeconfig that names the server.
	File string
	// Version is that of the SubjectAccessReview that is sent: v1 or v1beta1.
	Version string
	// AuthorizedTTL and UnauthorizedTTL are how long answers are cached.
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// NewConfig returns the defaults.
func NewConfig() Config {
	return Config{Webhook: WebhookConfig{Version: "v1beta1", AuthorizedTTL: 5 * time.Minute, UnauthorizedTTL: 30 * time.Second}}
}

// PermitsNodes reports whether nodes have permissions, as far as the flags decide it.
func (c *Config) PermitsNodes() bool {
	return len(c.Modes) == 0 || slices.ContainsFunc(c.Modes, func(mode string) bool { return mode != RBAC && mode != AlwaysDeny })
}

// validate returns the first contradiction of the flags.
func (c *Config) validate() error {
	if c.File != "" && (len(c.Modes) > 0 || c.PolicyFile != "" || c.Webhook.File != "") {
		return errors.New("--authorization-config: excludes --authorization-mode, --authorization-policy-file and --authorization-webhook-config-file, " +
			"describe all authorizers in the file")
	}
	for i, mode := range c.Modes {
		if !slices.Contains(Modes(), mode) {
			return fmt.Errorf("--authorization-mode: unsupported mode %q: choose from %s, or leave the flag out", mode, strings.Join(Modes(), ", "))
		}
		if slices.Contains(c.Modes[:i], mode) {
			return fmt.Errorf("--authorization-mode: mode %q is named twice", mode)
		}
	}
	for _, needs := range []struct{ mode, flag, value string }{
		{ABAC, "--authorization-policy-file", c.PolicyFile},
		{Webhook, "--authorization-webhook-config-file", c.Webhook.File},
	} {
		switch enabled := slices.Contains(c.Modes, needs.mode); {
		case enabled && needs.value == "":
			return fmt.Errorf("--authorization-mode: mode %q needs %s", needs.mode, needs.flag)
		case !enabled && needs.value != "":
			return fmt.Errorf("%s: has no effect without --authorization-mode=%s; set both", needs.flag, needs.mode)
		}
	}
	if v := c.Webhook.Version; v != "v1" && v != "v1beta1" && c.Webhook.File != "" {
		return fmt.Errorf("--authorization-webhook-version: unsupported version %q: must be v1 or v1beta1", v)
	}
	return nil
}

// listed returns the authorizers, and the content of the file.
func (c *Config) listed() (listed []authzconfig.AuthorizerConfiguration, content string, err error) {
	if c.File != "" {
		return readFile(c.File)
	}
	for _, mode := range c.Modes {
		l := authzconfig.AuthorizerConfiguration{Type: authzconfig.AuthorizerType(mode), Name: mode}
		if mode == Webhook {
			l.Webhook = c.Webhook.configuration()
		}
		listed = append(listed, l)
	}
	return listed, "", nil
}

// label returns the name of an authorizer in metrics. That of the webhook that flags describe
// is Kubernetes' "default".
func (c *Config) label(l authzconfig.AuthorizerConfiguration) string {
	if c.File == "" && l.Type == authzconfig.TypeWebhook {
		return "default"
	}
	return strings.ToLower(l.Name)
}

// configuration returns the flags in the form of the file.
func (w *WebhookConfig) configuration() *authzconfig.WebhookConfiguration {
	return &authzconfig.WebhookConfiguration{
		AuthorizedTTL: metav1.Duration{Duration: w.AuthorizedTTL}, CacheAuthorizedRequests: true,
		UnauthorizedTTL: metav1.Duration{Duration: w.UnauthorizedTTL}, CacheUnauthorizedRequests: true,
		Timeout:                    metav1.Duration{Duration: webhookTimeout},
		SubjectAccessReviewVersion: w.Version,
		FailurePolicy:              authzconfig.FailurePolicyNoOpinion,
		ConnectionInfo: authzconfig.WebhookConnectionInfo{
			Type: authzconfig.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &w.File,
		},
	}
}

// problem returns the error of the i-th of the listed authorizers. It names the flag and, of
// a file with the content, the file, and the field of the authorizer with its line.
func (c *Config) problem(i int, field, content string, err error) error {
	if c.File == "" {
		return fmt.Errorf("--authorization-webhook-config-file: %w", err)
	}
	err = fmt.Errorf("authorizers[%d]%s: %w", i, field, err)
	return fmt.Errorf("--authorization-config: %s: %w", c.File, configlines.Explain([]byte(content), err))
}

// readFile returns the authorizers of an AuthorizationConfiguration.
func readFile(file string) (listed []authzconfig.AuthorizerConfiguration, content string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, "", fmt.Errorf("--authorization-config: %w", err)
	}
	if err := yamldoc.Check(data); err != nil {
		return nil, "", fmt.Errorf("--authorization-config: %s: %w", file, err)
	}
	configuration, err := load.LoadFromData(data)
	if err != nil {
		return nil, "", fmt.Errorf("--authorization-config: %s: %w", file, configlines.Explain(data, err))
	}
	errs := validation.ValidateAuthorizationConfiguration(authorizationcel.NewDefaultCompiler(), nil, configuration,
		sets.New(Modes()...), sets.New(Webhook))
	if len(errs) == 0 {
		errs = validateNames(configuration.Authorizers)
	}
	if len(errs) > 0 {
		return nil, "", fmt.Errorf("--authorization-config: %s: %w", file, configlines.Explain(data, errs.ToAggregate()))
	}
	return configuration.Authorizers, string(data), nil
}

// validateNames returns an error for each authorizer of a mode, but Webhook, whose name is not
// the mode's.
func validateNames(listed []authzconfig.AuthorizerConfiguration) field.ErrorList {
	var errs field.ErrorList
	for i, l := range listed {
		if want := strings.ToLower(string(l.Type)); l.Type != authzconfig.TypeWebhook && l.Name != want {
			errs = append(errs, field.Invalid(field.NewPath("authorizers").Index(i).Child("name"), l.Name, fmt.Sprintf("must be %s for type %s", want, l.Type)))
		}
	}
	return errs
}

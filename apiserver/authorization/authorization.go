// Package authorization owns the authorizers of requests and the rules that users
// have without roles.
//
// The authorizer is a union: members of system:masters are allowed everything, and the
// program that the server is part of has its grants; then the modes of the flag --authorization-mode, or the authorizers of the file
// --authorization-config, decide in their order. Without either, the rules of [Basic],
// of [Nodes] and the grants to components are allowed.
package authorization

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	authzconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/metrics"
	"k8s.io/apiserver/pkg/authorization/union"

	"svc.dev/svc/apiserver/authorization/abac"
	"svc.dev/svc/apiserver/authorization/node"
)

// Authorizer authorizes requests and lists the rules of a user.
type Authorizer interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Authorizers are those of a server.
type Authorizers struct {
	// Authorizer is the union of all.
	Authorizer
	// Roles is the authorizer of the mode RBAC, whose Follow the caller must call. It
	// is nil without the mode.
	Roles *Roles
	// Nodes is the authorizer of the mode Node, whose Follow and Run the caller must
	// call. It is nil without the mode.
	Nodes *node.Authorizer
	// AllowsAll is true with the mode AlwaysAllow.
	AllowsAll bool

	config  Config
	content string // of config.File
	// members are the authorizers of the modes but Webhook. They are made once, so that
	// a reload of the file does not begin without roles and pods.
	members map[authzconfig.AuthorizerType]Authorizer
	current atomic.Pointer[united]
}

// New makes the authorizers. The grants to components apply without a mode and in the
// mode RBAC. Errors name the flag and, of a file, the file and the field.
func New(config Config) (*Authorizers, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	a := &Authorizers{config: config, members: map[authzconfig.AuthorizerType]Authorizer{}}
	a.Authorizer = replaceable{&a.current}
	listed, content, err := config.listed()
	if err != nil {
		return nil, err
	}
	for _, l := range listed {
		if err := a.construct(l.Type); err != nil {
			return nil, err
		}
	}
	all, err := a.unite(listed, content)
	if err != nil {
		return nil, err
	}
	a.content = content
	a.current.Store(all)
	return a, nil
}

// construct makes the authorizer of a mode other than Webhook.
func (a *Authorizers) construct(mode authzconfig.AuthorizerType) error {
	switch mode {
	case Node:
		a.Nodes = node.New(Grants{nodesThemselves()}, a.config.Nodes)
		a.members[mode] = a.Nodes
	case RBAC:
		a.Roles = &Roles{components: a.config.Components}
		a.members[mode] = a.Roles
	case ABAC:
		policies, err := abac.Load(a.config.PolicyFile)
		if err != nil {
			return fmt.Errorf("--authorization-policy-file: %w", err)
		}
		a.members[mode] = policies
	case AlwaysAllow:
		a.AllowsAll = true
		a.members[mode] = authorizerfactory.NewAlwaysAllowAuthorizer()
	case AlwaysDeny:
		a.members[mode] = authorizerfactory.NewAlwaysDenyAuthorizer()
	}
	return nil
}

// unite makes the union of the listed authorizers, of the file with the content if there is one.
func (a *Authorizers) unite(listed []authzconfig.AuthorizerConfiguration, content string) (*united, error) {
	members := []member{ofServer("system:masters", masters())}
	if len(a.config.Own) > 0 {
		members = append(members, ofServer("system:own", a.config.Own))
	}
	if len(listed) == 0 {
		members = append(members, ofServer("Basic", Basic()), ofServer("Nodes", Grants{Nodes()}), ofServer("components", a.config.Components))
	}
	for i, l := range listed {
		m := member{l.Name, string(l.Type), a.config.label(l), a.members[l.Type]}
		if l.Type == authzconfig.TypeWebhook {
			hook, err := a.config.webhook(i, content, m.label, l.Webhook)
			if err != nil {
				return nil, err
			}
			m.authorizer = hook
		}
		if m.authorizer == nil {
			return nil, a.config.problem(i, "", content, fmt.Errorf("type %s cannot be added while the server runs, restart it", l.Type))
		}
		members = append(members, m)
	}
	return unite(members)
}

// masters allows everything to the group of administrators, system:masters.
func masters() Authorizer {
	return Grants{{Group: user.SystemPrivilegedGroup, Rules: Everything()}}
}

// member is one authorizer of a union. Its name is unique in the union and the
// prefix of its reasons for a refusal; its label is its name in metrics.
type member struct {
	name, kind, label string
	authorizer        Authorizer
}

// ofServer returns a member that no mode has.
func ofServer(name string, a Authorizer) member { return member{name, name, strings.ToLower(name), a} }

// united is a union of authorizers and of their rule resolvers.
type united struct {
	authorizer.Authorizer
	authorizer.RuleResolver
}

func unite(members []member) (*united, error) {
	var authorizers []union.NamedAuthorizer
	var resolvers []authorizer.RuleResolver
	for _, m := range members {
		authorizers = append(authorizers, union.NamedAuthorizer{
			AuthorizerName: m.name,
			Authorizer:     metrics.InstrumentedAuthorizer(m.kind, m.label, m.authorizer),
		})
		resolvers = append(resolvers, m.authorizer)
	}
	decide, err := union.New(authorizers...)
	if err != nil {
		return nil, fmt.Errorf("unite authorizers: %w", err)
	}
	return &united{Authorizer: decide, RuleResolver: union.NewRuleResolvers(resolvers...)}, nil
}

// replaceable is the current union.
type replaceable struct{ current *atomic.Pointer[united] }

// Authorize implements authorizer.Authorizer.
func (r replaceable) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return r.current.Load().Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (r replaceable) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return r.current.Load().ConditionsAwareAuthorize(ctx, a)
}

// EvaluateConditions implements authorizer.Authorizer.
func (r replaceable) EvaluateConditions(ctx context.Context, d authorizer.ConditionsAwareDecision, data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return r.current.Load().EvaluateConditions(ctx, d, data)
}

// RulesFor implements authorizer.RuleResolver.
func (r replaceable) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return r.current.Load().RulesFor(ctx, who, namespace)
}

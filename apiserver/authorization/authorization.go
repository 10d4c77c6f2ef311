// Package authorization owns the authorizers of requests and the rules that users
// have without roles.
//
// The authorizer is a union: members of system:masters are allowed everything;
// then the modes of the flag --authorization-mode decide, in their order. Without
// a mode, the rules of [Basic] and the grants to components are allowed.
package authorization

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/metrics"
	"k8s.io/apiserver/pkg/authorization/union"
)

// Authorizer authorizes requests and lists the rules of a user.
type Authorizer interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// New makes the authorizer of the flag --authorization-mode. The grants to
// components apply without a mode and in the mode RBAC. In the mode RBAC it
// returns the roles, too: the caller must call Follow on them. The error names
// the flag and the mode that is refused.
func New(modes []string, components Grants) (Authorizer, *Roles, error) {
	var roles *Roles
	members := []member{{"system:masters", masters()}}
	if len(modes) == 0 {
		members = append(members, member{"Basic", Basic()}, member{"components", components})
	}
	for i, mode := range modes {
		construct, ok := available(mode)
		if !ok {
			return nil, nil, fmt.Errorf("--authorization-mode: mode %q is not available: choose from %s, or leave the flag out", mode, strings.Join(Modes(), ", "))
		}
		if slices.Contains(modes[:i], mode) {
			return nil, nil, fmt.Errorf("--authorization-mode: mode %q is named twice", mode)
		}
		m := member{mode, construct(components)}
		if r, ok := m.authorizer.(*Roles); ok {
			roles = r
		}
		members = append(members, m)
	}
	all, err := unite(members)
	return all, roles, err
}

// Modes are the values of the flag --authorization-mode.
func Modes() []string {
	var names []string
	for _, m := range modes() {
		names = append(names, m.name)
	}
	return names
}

type mode struct {
	name      string
	construct func(components Grants) Authorizer
}

// RBAC is the mode in which roles and bindings grant rules to users.
const RBAC = "RBAC"

// AlwaysAllow is the mode that allows every request.
const AlwaysAllow = "AlwaysAllow"

// modes lists the modes that exist.
func modes() []mode {
	return []mode{
		{RBAC, func(components Grants) Authorizer { return &Roles{components: components} }},
		{AlwaysAllow, func(Grants) Authorizer { return authorizerfactory.NewAlwaysAllowAuthorizer() }},
		{"AlwaysDeny", func(Grants) Authorizer { return authorizerfactory.NewAlwaysDenyAuthorizer() }},
	}
}

func available(name string) (func(Grants) Authorizer, bool) {
	for _, m := range modes() {
		if m.name == name {
			return m.construct, true
		}
	}
	return nil, false
}

// masters allows everything to the group of administrators, system:masters.
func masters() Authorizer {
	return Grants{{Group: user.SystemPrivilegedGroup, Rules: Everything()}}
}

// member is one authorizer of a union. Its name is unique in the union and the
// prefix of its reasons for a refusal.
type member struct {
	name       string
	authorizer Authorizer
}

// united is a union of authorizers and of their rule resolvers.
type united struct {
	authorizer.Authorizer
	authorizer.RuleResolver
}

func unite(members []member) (Authorizer, error) {
	var authorizers []union.NamedAuthorizer
	var resolvers []authorizer.RuleResolver
	for _, m := range members {
		authorizers = append(authorizers, union.NamedAuthorizer{
			AuthorizerName: m.name,
			Authorizer:     metrics.InstrumentedAuthorizer(m.name, strings.ToLower(m.name), m.authorizer),
		})
		resolvers = append(resolvers, m.authorizer)
	}
	decide, err := union.New(authorizers...)
	if err != nil {
		return nil, fmt.Errorf("unite authorizers: %w", err)
	}
	return united{Authorizer: decide, RuleResolver: union.NewRuleResolvers(resolvers...)}, nil
}

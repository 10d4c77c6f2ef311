// Command reference generates files from declarations: the reference pages of the
// controllers and of svclet's settings, the roles of the components, and the APIServices.
// It runs in the root of the module. With -release=1.33 the APIServices, and the roles that
// name groups, are those of a fleet that serves release 1.33.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/controller"
)

const module = "svc.dev/svc/"

func main() {
	flag.Func("release", "the release that the fleet of config/aggregated serves, by default "+release.Default.String(), func(text string) (err error) {
		fleetRelease, err = release.Parse(text)
		return err
	})
	flag.Parse()
	for path, write := range map[string]func() (string, error){
		"config/components/namespace-scoped/zz_generated.controllers.yaml": clusterRules,

		"docs/reference/admission.md":                            admissionPlugins,
		"docs/reference/controllers.md":                          page,
		"docs/reference/feature-gates.md":                        featureGates,
		"docs/reference/svclet.md":                               svclet,
		"docs/reference/svclet-since.md":                         since,
		"config/rbac/zz_generated.controller-manager.yaml":       role,
		"config/aggregated/system/zz_generated.apiservices.yaml": apiServices,
		"config/aggregated/system/zz_generated.registrar.yaml":   registrar,
		"config/aggregated/system/zz_generated.controllers.yaml": fleetRole,
		"config/aggregated/system/zz_generated.machines.yaml":    machineRole,
	} {
		content, err := write()
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// page returns the reference of all controllers.
func page() (string, error) {
	all := controllers.All()
	slices.SortFunc(all, func(a, b controller.Controller) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	b.WriteString(`# Controllers

<!-- Generated from the controllers' declarations by make generate; do not edit. -->

Each controller can be named in ` + "`--controllers`" + `, by its name or by that of kube-controller-manager. It has only the permissions
that are listed here, and that to record events. ` + "[Running controllers](../controllers.md)" + ` explains how to choose controllers.

`)
	for _, c := range all {
		summary, err := synopsis(c)
		if err != nil {
			return "", err
		}
		rules, err := controllers.RulesOf(c)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| | |\n|---|---|\n", c.Name, summary)
		if len(c.Aliases) > 0 {
			fmt.Fprintf(&b, "| aliases | %s |\n", quoted(c.Aliases))
		}
		switch {
		case c.OnDemand && c.Gate != "":
			fmt.Fprintf(&b, "| runs | when `--controllers` names it, or the feature gate `%s` is on", c.Gate)
			if c.Newer {
				b.WriteString(", and the API server serves what it reads")
			}
			b.WriteString(" |\n")
		case c.OnDemand:
			b.WriteString("| runs | only when `--controllers` names it |\n")
		case c.Newer:
			b.WriteString("| runs | when the API server serves what it reads, which the default release does not")
			if c.Standalone {
				b.WriteString("; for a fleet behind a host only when `--controllers` names it, too")
			}
			b.WriteString(" |\n")
		case c.Standalone:
			b.WriteString("| runs | for a fleet behind a host only when `--controllers` names it |\n")
		}
		if len(c.Reads) > 0 {
			fmt.Fprintf(&b, "| reads | %s |\n", resources(rules[:len(c.Reads)]))
		}
		for _, r := range rules[len(c.Reads):] {
			fmt.Fprintf(&b, "| may %s | %s |\n", strings.Join(r.Verbs, ", "), resources([]rbacv1.PolicyRule{r}))
		}
		b.WriteString("\n")
		b.WriteString(flags(c))
	}
	return strings.TrimRight(b.String(), "\n") + "\n", nil
}

// resources returns the resources of rules with kubectl's names, resource.group.
func resources(rules []rbacv1.PolicyRule) string {
	var names []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name, sub, _ := strings.Cut(resource, "/")
				if group != "" {
					name += "." + group
				}
				if sub != "" {
					name += "/" + sub
				}
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return quoted(slices.Compact(names))
}

func quoted(words []string) string {
	return "`" + strings.Join(words, "`, `") + "`"
}

// flags returns a table of the controller's flags, empty if it has none.
func flags(c controller.Controller) string {
	if c.Flags == nil {
		return ""
	}
	fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	c.Flags(fs)
	var b strings.Builder
	b.WriteString("| flag | default | |\n|---|---|---|\n")
	fs.VisitAll(func(f *pflag.Flag) {
		value := ""
		if f.DefValue != "" {
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, value, cell(f.Usage))
	})
	return b.String() + "\n"
}

// cell escapes a text for a cell of a Markdown table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "|", `\|`)
}

// synopsis returns the first sentence of the documentation of the package that
// declares the controller, without the package's name.
func synopsis(c controller.Controller) (string, error) {
	declared := runtime.FuncForPC(reflect.ValueOf(c.Setup).Pointer()).Name()
	dir, name := filepath.Split(strings.TrimPrefix(declared, module))
	name, _, _ = strings.Cut(name, ".")
	dir = filepath.Join(dir, name)
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	set := token.NewFileSet()
	for _, file := range files {
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		if text := packageDoc(parsed); text != "" {
			return text, nil
		}
	}
	return "", fmt.Errorf("package %s, of controller %s, has no documentation", dir, c.Name)
}

func packageDoc(file *ast.File) string {
	if file.Doc == nil {
		return ""
	}
	sentence := new(doc.Package).Synopsis(file.Doc.Text())
	sentence = strings.TrimPrefix(sentence, "Package "+file.Name.Name+" ")
	return strings.ToUpper(sentence[:1]) + sentence[1:]
}

// role returns the manifest of the manager's ClusterRole.
func role() (string, error) {
	rules, err := controllers.Rules()
	if err != nil {
		return "", err
	}
	return manifest("from the controllers' declarations", clusterRole("svc-controller-manager", merged(rules)...))
}

// merged returns one rule for each resource, sorted by group and name.
func merged(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	verbs := map[[3]string][]string{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				key := [3]string{group, resource, strings.Join(rule.ResourceNames, ",")}
				verbs[key] = append(verbs[key], rule.Verbs...)
			}
		}
	}
	var keys [][3]string
	for key := range verbs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
	var one []rbacv1.PolicyRule
	for _, key := range keys {
		slices.Sort(verbs[key])
		rule := rbacv1.PolicyRule{APIGroups: []string{key[0]}, Resources: []string{key[1]}, Verbs: slices.Compact(verbs[key])}
		if key[2] != "" {
			rule.ResourceNames = strings.Split(key[2], ",")
		}
		one = append(one, rule)
	}
	return one
}

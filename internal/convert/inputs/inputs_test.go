package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"svc.dev/svc/internal/convert"
	"svc.dev/svc/internal/releases"
)

const (
	old     = "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: a}\n"
	new     = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\n"
	current = "apiVersion: v1\nkind: Secret\nmetadata: {name:   a}\n"
)

func converter(t *testing.T) *convert.Converter {
	t.Helper()
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	return &convert.Converter{Table: table, Release: 25}
}

func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConvertGivesUpReadingStdinWhenItsContextIsDone(t *testing.T) {
	open, end := io.Pipe()
	defer end.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Convert(ctx, converter(t), []string{Stdin}, open); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAWrittenFileKeepsItsOwnerAndMode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	path := filepath.Join(files(t, map[string]string{"a.yaml": old}), "a.yaml")
	if err := errors.Join(os.Chown(path, 1234, 4321), os.Chmod(path, 0o604|fs.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	result, err := Convert(t.Context(), converter(t), []string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	result.Write()
	info, err := os.Stat(path)
	if err != nil || len(result.Errors) > 0 {
		t.Fatal(err, result.Errors)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 1234 || stat.Gid != 4321 || info.Mode() != 0o604|fs.ModeSetgid {
		t.Errorf("owner %d:%d, mode %v", stat.Uid, stat.Gid, info.Mode())
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != new {
		t.Errorf("%s, %v", text, err)
	}
}

func TestADirectoryIsReadAndWritten(t *testing.T) {
	dir := files(t, map[string]string{
		"a.yaml": old, "sub/b.yml": current, "sub/c.json": `{"name": "no manifest"}`,
		"chart/t.yaml": "a: {{ .Values.a }}\nb: [\n", "tsconfig.json": "{ // no JSON\n}",
		".git/x.yaml": "b: [\n", "README.md": "b: [\n",
	})
	link := filepath.Join(dir, "sub", "link.yaml")
	if err := os.Symlink(filepath.Join(dir, "a.yaml"), link); err != nil {
		t.Fatal(err)
	}
	result, err := Convert(t.Context(), converter(t), []string{dir}, nil)
	if err != nil || len(result.Errors) > 0 {
		t.Fatal(err, result.Errors)
	}
	var not []string
	for _, o := range result.Outcomes {
		if o.NotChecked != "" {
			reason, _, _ := strings.Cut(o.NotChecked, ":")
			not = append(not, filepath.Base(o.File)+" "+reason)
		}
	}
	if got := strings.Join(not, ", "); got != "t.yaml template, c.json no object, tsconfig.json no manifest" {
		t.Errorf("not checked: %s", got)
	}
	if result.Write(); len(result.Errors) > 0 {
		t.Fatal(result.Errors)
	}
	for name, want := range map[string]string{"a.yaml": new, "sub/b.yml": current} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		info, statErr := os.Stat(filepath.Join(dir, name))
		if err != nil || statErr != nil || string(got) != want || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v %v %v, got\n%s", name, err, statErr, info.Mode(), got)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".svc-convert-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v %v", left, err)
	}
}

func TestLinksOfADirectoryAreReadOrReported(t *testing.T) {
	outside := files(t, map[string]string{"x.yaml": old, "more/y.yaml": old})
	dir := files(t, map[string]string{"a.yaml": current, "sub/b.yaml": current, "..data/c.yaml": old, "sub/.hidden/d.yaml": old})
	for link, target := range map[string]string{
		"same.yaml": "a.yaml", "inside": "sub", "itself": ".", // read already
		"c.yaml": "..data/c.yaml", "x.yaml": filepath.Join(outside, "x.yaml"), // read
		"hidden": "sub/.hidden", "gone.yaml": "nothing", "more": filepath.Join(outside, "more"), // reported
		"README": "nothing", // no manifest by its name
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	result, err := Convert(t.Context(), converter(t), []string{dir}, nil)
	if err != nil || len(result.Errors) > 0 {
		t.Fatal(err, result.Errors)
	}
	var got []string
	for _, f := range result.Files {
		got = append(got, filepath.Base(f.Name))
	}
	for _, o := range result.Outcomes {
		if o.NotChecked != "" {
			got = append(got, filepath.Base(o.File)+": "+o.NotChecked)
		}
	}
	slices.Sort(got)
	want := []string{
		"a.yaml", "b.yaml", "c.yaml", "gone.yaml: symbolic link to a file that does not exist",
		"hidden: symbolic link to a directory: name the directory, too", "more: symbolic link to a directory: name the directory, too", "x.yaml",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if result.Write(); len(result.Errors) != 1 || !strings.Contains(result.Errors[0].Error(), "x.yaml: symbolic link to a file outside of the directory") {
		t.Errorf("writing: %v", result.Errors)
	}
	for _, file := range []string{filepath.Join(outside, "x.yaml"), filepath.Join(dir, "..data", "c.yaml")} {
		if text, err := os.ReadFile(file); err != nil || string(text) != old {
			t.Errorf("%s is %q, %v", file, text, err)
		}
	}
}

func TestWriteKeepsALink(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": old})
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink("a.yaml", link); err != nil {
		t.Fatal(err)
	}
	result, err := Convert(t.Context(), converter(t), []string{link}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Write(); len(result.Errors) > 0 {
		t.Fatal(result.Errors)
	}
	if target, err := os.Readlink(link); err != nil || target != "a.yaml" {
		t.Errorf("the link is %q, %v", target, err)
	}
	if got, err := os.ReadFile(link); err != nil || string(got) != new {
		t.Errorf("%v, got %s", err, got)
	}
}

func TestANamedFileHasToBeAManifest(t *testing.T) {
	dir := files(t, map[string]string{"values.yaml": "# values\nimage: web\n", "bad.yaml": "a: b\n c: [\n", "t.yaml": "a: {{ .x }}\nb: [\n"})
	for name, want := range map[string]string{
		"values.yaml": "values.yaml:2: no object: it has no apiVersion and kind",
		"bad.yaml":    "bad.yaml:2: invalid YAML",
		"t.yaml":      "is a template: render it first",
	} {
		result, err := Convert(t.Context(), converter(t), []string{filepath.Join(dir, name)}, nil)
		if err != nil || len(result.Errors) != 1 || !strings.Contains(result.Errors[0].Error(), want) {
			t.Errorf("%s: %v %v", name, err, result.Errors)
		}
	}
	if _, err := Convert(t.Context(), converter(t), []string{filepath.Join(dir, "gone")}, nil); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestTheStandardInput(t *testing.T) {
	result, err := Convert(t.Context(), converter(t), []string{Stdin}, strings.NewReader("---\n"+old+"---\n"))
	if err != nil || len(result.Errors) > 0 || result.Files[0].After != "---\n"+new+"---\n" || result.Outcomes[0].File != "<stdin>" {
		t.Errorf("%v %+v", err, result)
	}
}

func TestPatchesOfKustomizationsAreNotCompleted(t *testing.T) {
	const patch = "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 3, $retainKeys: [replicas]}\n"
	dir := files(t, map[string]string{
		"kustomization.yaml":  "resources: [whole.yaml]\npatchesStrategicMerge: [patch.yaml]\npatches:\n- path: sub/more.yaml\n- target: {kind: Deployment}\n  patch: '[]'\n",
		"patch.yaml":          patch,
		"sub/more.yaml":       patch,
		"whole.yaml":          patch,
		"b/kustomization.yml": "patches: 1\n",
	})
	result, err := Convert(t.Context(), converter(t), []string{dir}, nil)
	if err != nil || len(result.Errors) > 0 {
		t.Fatal(err, result.Errors)
	}
	want := strings.Replace(patch, "extensions/v1beta1", "apps/v1", 1)
	for _, o := range result.Outcomes {
		if base := filepath.Base(o.File); (o.Code() == 2) != (base == "whole.yaml") && o.NotChecked == "" {
			t.Errorf("%s: %+v", base, o.Findings)
		}
	}
	for _, f := range result.Files {
		switch base := filepath.Base(f.Name); base {
		case "patch.yaml", "more.yaml":
			if f.After != want {
				t.Errorf("%s:\n%s", base, f.After)
			}
		case "whole.yaml":
			if f.After == want {
				t.Error("the defaults of a whole object are not written out")
			}
		}
	}
}

func TestKustomizationsFollowTheObjectsThatTheyReferTo(t *testing.T) {
	const before = `resources: [web.yaml]
patches:
- target: {group: extensions, version: v1beta1, kind: Ingress, name: web} # the site
  path: operations.yaml
- target:
    version: v1beta1
    kind: CronJob
  patch: |-
    - op: replace
      path: /spec/suspend
      value: true
- patch: |-
    apiVersion: extensions/v1beta1
    kind: Ingress
    metadata:
      name: web
    spec:
      backend: {serviceName: a, servicePort: 80}
- target: {group: apps, version: v1, kind: Deployment}
  path: operations.yaml
- target: {kind: Ingress}
  path: operations.yaml
patchesJson6902:
- target: {group: networking.k8s.io, version: v1beta1, kind: Ingress, name: web}
  patch: '[{"op": "remove", "path": "/spec/backend"}]'
replacements:
- source: {kind: ConfigMap, name: c}
  targets:
  - select: {group: policy, version: v1beta1, kind: PodDisruptionBudget}
  - select: {group: extensions, version: v1beta1, kind: Ingress}
    fieldPaths: [metadata.name, spec.backend.serviceName]
- source: {group: extensions, version: v1beta1, kind: Ingress, name: web, fieldPath: spec.backend.servicePort}
  targets:
  - select: {version: v1beta1, kind: CronJob}
    fieldPaths: [spec.schedule]
vars:
- name: SERVICE
  objref: {apiVersion: batch/v1beta1, kind: CronJob, name: a}
`
	after := strings.NewReplacer("group: extensions, version: v1beta1, kind: Ingress", "group: networking.k8s.io, version: v1, kind: Ingress",
		"    version: v1beta1\n    kind: CronJob", "    version: v1\n    kind: CronJob", "{version: v1beta1, kind: CronJob}", "{version: v1, kind: CronJob}",
		"    apiVersion: extensions/v1beta1", "    apiVersion: networking.k8s.io/v1",
		"backend: {serviceName: a, servicePort: 80}", "defaultBackend: {service: {name: a, port: {number: 80}}}",
		"group: networking.k8s.io, version: v1beta1", "group: networking.k8s.io, version: v1",
		"group: policy, version: v1beta1", "group: policy, version: v1", "apiVersion: batch/v1beta1", "apiVersion: batch/v1").Replace(before)
	dir := files(t, map[string]string{"kustomization.yaml": before, "operations.yaml": "- op: remove\n  path: /spec/backend\n"})
	result, err := Convert(t.Context(), converter(t), []string{dir}, nil)
	if err != nil || len(result.Errors) > 0 {
		t.Fatal(err, result.Errors)
	}
	for _, f := range result.Files {
		if filepath.Base(f.Name) == "kustomization.yaml" && f.After != after {
			t.Errorf("got\n%s", f.After)
		}
	}
	var decide []string
	for _, o := range result.Outcomes {
		for _, f := range o.Findings {
			if f.Action == convert.Decide {
				decide = append(decide, f.Path)
			}
		}
	}
	if got := strings.Join(decide, " "); got != "patches[0] patchesJson6902[0] replacements[0].targets[1].fieldPaths replacements[1].source.fieldPath" {
		t.Errorf("to decide: %s", got)
	}
}

func TestPatchesOfOneLineAreConverted(t *testing.T) {
	const before = `resources: [web.yaml]
patchesStrategicMerge:
- "{apiVersion: batch/v1beta1, kind: CronJob, metadata: {name: a}}"
- patch.yaml
- "{file}: [.yaml"
patches:
- patch: '{"apiVersion": "extensions/v1beta1", "kind": "Ingress", "metadata": {"name": "web"}, "spec": {"backend": {"serviceName": "a", "servicePort": 80}}}'
- patch: "{apiVersion: [}"
`
	after := strings.NewReplacer("batch/v1beta1", "batch/v1", "extensions/v1beta1", "networking.k8s.io/v1",
		`"backend": {"serviceName": "a", "servicePort": 80}`, `"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}`).Replace(before)
	dir := files(t, map[string]string{"kustomization.yaml": before, "{file}: [.yaml": new})
	result, err := Convert(t.Context(), converter(t), []string{filepath.Join(dir, "kustomization.yaml")}, nil)
	if err != nil || len(result.Errors) > 0 || len(result.Files) != 1 {
		t.Fatal(err, result)
	}
	if got := result.Files[0].After; got != after {
		t.Errorf("got\n%s", got)
	}
	var lines []string
	for _, o := range result.Outcomes {
		for _, f := range o.Findings {
			lines = append(lines, fmt.Sprintf("%d %s %s", f.Line, f.Path, f.Rule))
		}
	}
	want := []string{"3 patchesStrategicMerge[0]: apiVersion removed-version", "7 patches[0].patch: apiVersion removed-version", "8 patches[1].patch not-convertible"}
	if !slices.Equal(lines, want) {
		t.Errorf("findings %q, want %q", lines, want)
	}
}

func TestAFileIsReadOnce(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": old, "sub/b.yaml": old})
	if err := os.Symlink("a.yaml", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	result, err := Convert(t.Context(), converter(t), []string{filepath.Join(dir, "a.yaml"), dir, filepath.Join(dir, "sub", "..", "sub"), filepath.Join(dir, "link.yaml")}, nil)
	if err != nil || len(result.Errors) > 0 || len(result.Files) != 2 || len(result.Outcomes) != 2 {
		t.Errorf("%v %v, %+v", err, result.Errors, result.Files)
	}
}

func TestAFileThatCannotBeReadHidesNoOther(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": old})
	if err := os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")); err != nil {
		t.Fatal(err)
	}
	result, err := Convert(t.Context(), converter(t), []string{dir}, nil)
	if err != nil || len(result.Files) != 1 || result.Outcomes[0].NotChecked != "symbolic link that refers to itself" {
		t.Errorf("%v %+v", err, result)
	}
	want := filepath.Join(dir, "gone.yaml") + ": no such file or directory"
	if _, err := Convert(t.Context(), converter(t), []string{filepath.Join(dir, "gone.yaml")}, nil); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestAFileThatCannotBeWrittenStaysAsItIs(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": old, "gone/b.yaml": old, "c.yaml": old})
	result, err := Convert(t.Context(), converter(t), []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	result.Write()
	want := filepath.Join(dir, "gone", "b.yaml") + ": no such file or directory"
	if len(result.Errors) != 1 || result.Errors[0].Error() != want {
		t.Errorf("%v, want %s", result.Errors, want)
	}
	for _, o := range result.Outcomes {
		if gone := strings.Contains(o.File, "gone"); o.Kept != gone {
			t.Errorf("%+v", o)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "c.yaml")); err != nil || string(got) != new {
		t.Errorf("%v, got %s", err, got)
	}
}

package conformance

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/client-go/util/cert"

	"svc.dev/svc/test/launch"
)

// tools are the programs of this machine that the tests run in their pods, beside those of busybox.
var tools = []string{"bash", "curl", "dd", "dig", "getent", "ip", "nc", "nsenter", "printenv", "ss", "wget"}

// nsenter lets pods of the tests run programs of the node. Where the first process is closed to
// root, it enters the mount namespace of the kernel's threads, which is the same.
const nsenter = `#!/bin/bash
arguments=("$@")
[[ -r /rootfs/proc/1/ns/mnt ]] || arguments=("${@/#--mount=\/rootfs\/proc\/1\//--mount=/rootfs/proc/2/}")
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin exec /usr/libexec/nsenter "${arguments[@]}"
`

// images returns the images of the tests by the names that the program of the tests gives
// them, made of the programs in bin and of this machine's.
func images(ctx context.Context, bin string) ([]launch.Image, error) {
	list, err := exec.CommandContext(ctx, filepath.Join(bin, "conformance.test"), "--list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("list the images of the tests: %w", err)
	}
	base, err := launch.Busybox("")
	if err != nil {
		return nil, err
	}
	if err := addTools(ctx, base); err != nil {
		return nil, err
	}
	var made []launch.Image
	for _, name := range strings.Fields(string(list)) {
		if !strings.HasPrefix(name, "registry.k8s.io/") {
			continue // the tests try to pull it in vain
		}
		image, err := imageOf(base, name, bin)
		if err != nil {
			return nil, fmt.Errorf("make the image %s: %w", name, err)
		}
		if image.Name != "" {
			made = append(made, image)
		}
	}
	return made, nil
}

// imageOf returns the image with a name, made of a base. It is the zero image if the tests run
// without it.
func imageOf(base launch.Image, name, bin string) (image launch.Image, err error) {
	image = launch.Image{Name: name, Files: maps.Clone(base.Files), Config: base.Config}
	repository, _, _ := strings.Cut(name, ":")
	switch repository = path.Base(repository); repository {
	case "busybox":
	case "nonroot":
		image.Config.User, image.Config.Cmd = "1234", []string{"id", "-u"}
	case "agnhost", "glibc-dns-testing":
		image.Config.Entrypoint, image.Config.Cmd = []string{"/agnhost"}, []string{"pause"}
		image.Files["/agnhost-2"] = launch.ImageFile{Link: "agnhost"}
		image.Files["/uploads"] = launch.ImageFile{Mode: fs.ModeDir | 0o755}
		extend(image, "/etc/passwd", "user-defined-in-image:x:1000:1000::/:/bin/sh\n")
		extend(image, "/etc/group", "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
		certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err != nil {
			return launch.Image{}, err
		}
		addText(image, "/localhost.crt", string(certificate))
		addText(image, "/localhost.key", string(key))
		addDirectories(image, "/usr/libexec/nsenter")
		image.Files["/usr/libexec/nsenter"] = image.Files["/bin/nsenter"]
		image.Files["/bin/nsenter"] = launch.ImageFile{Content: []byte(nsenter)}
		return image, add(image, filepath.Join(bin, "agnhost"), "/agnhost")
	case "nginx":
		addText(image, "/usr/share/nginx/html/index.html", "<title>Welcome to nginx!</title>\n")
		image.Config.Cmd = []string{"httpd", "-f", "-p", "80", "-h", "/usr/share/nginx/html"}
	case "nautilus", "kitten":
		addText(image, "/html/data.json", fmt.Sprintf("{\n\t\"image\": \"%s.jpg\"\n}\n", repository))
		image.Config.Cmd = []string{"httpd", "-f", "-p", "80", "-h", "/html"}
	case "nonewprivs":
		image.Config.Cmd, image.Config.Env = []string{"nnp"}, []string{"PATH=/usr/local/bin:/bin"}
		err = add(image, filepath.Join(bin, "nonewprivs"), "/usr/local/bin/nnp")
		program := image.Files["/usr/local/bin/nnp"]
		program.Mode = fs.ModeSetuid | 0o755
		image.Files["/usr/local/bin/nnp"] = program
	case "sample-apiserver":
		image.Config.Entrypoint, image.Config.Cmd = []string{"/sample-apiserver"}, nil
		err = add(image, filepath.Join(bin, "sample-apiserver"), "/sample-apiserver")
	case "etcd":
		image.Config.Cmd, image.Config.Env = []string{"etcd"}, []string{"PATH=/usr/local/bin:/bin"}
		err = add(image, filepath.Join(bin, "etcd"), "/usr/local/bin/etcd")
	case "pause":
		image.Config.Entrypoint, image.Config.Cmd = []string{"/bin/sh", "-c", "trap exit TERM INT; while :; do sleep 1000 & wait; done"}, nil
	default:
		return launch.Image{}, nil
	}
	return image, err
}

// extend appends to a file of an image.
func extend(image launch.Image, file, text string) {
	f := image.Files[file]
	f.Content = append(f.Content[:len(f.Content):len(f.Content)], text...)
	image.Files[file] = f
}

// addText adds a file to an image.
func addText(image launch.Image, at, text string) {
	addDirectories(image, at)
	image.Files[at] = launch.ImageFile{Content: []byte(text), Mode: 0o644}
}

// add adds a file of this machine to an image.
func add(image launch.Image, file, at string) error {
	content, err := os.ReadFile(file)
	addDirectories(image, at)
	image.Files[at] = launch.ImageFile{Content: content}
	return err
}

// addDirectories adds the directories of a file to an image.
func addDirectories(image launch.Image, at string) {
	for at = path.Dir(at); at != "/"; at = path.Dir(at) {
		if _, ok := image.Files[at]; !ok {
			image.Files[at] = launch.ImageFile{Mode: fs.ModeDir | 0o755}
		}
	}
}

// addTools adds the tools to an image. Its shell is bash: that of busybox prefers the commands
// of its own, and drops environment variables whose names it could not set.
func addTools(ctx context.Context, image launch.Image) error {
	for _, tool := range tools {
		if err := addTool(ctx, image, tool); err != nil {
			return err
		}
	}
	image.Files["/bin/sh"] = launch.ImageFile{Link: "bash"}
	addDirectories(image, "/var/tmp")
	image.Files["/var/tmp"] = launch.ImageFile{Mode: fs.ModeDir | fs.ModeSticky | 0o777}
	return nil
}

// library matches the path of a library in the output of ldd.
var library = regexp.MustCompile(`(/\S+) \(0x`)

// addTool adds a program of this machine and the libraries that it needs to an image, in /bin.
func addTool(ctx context.Context, image launch.Image, tool string) error {
	file, err := exec.LookPath(tool)
	if err != nil {
		return err
	}
	// A program without libraries is an error of ldd.
	needed, _ := exec.CommandContext(ctx, "ldd", file).Output()
	for _, found := range library.FindAllStringSubmatch(string(needed), -1) {
		if err := add(image, found[1], found[1]); err != nil {
			return err
		}
	}
	return add(image, file, "/bin/"+tool)
}

// importImages makes the images and imports them into the node.
func importImages(ctx context.Context, node *launch.Node, bin, dir string) error {
	made, err := images(ctx, bin)
	if err != nil {
		return err
	}
	svc, err := launch.Binary()
	if err != nil {
		return err
	}
	for i, image := range made {
		file := filepath.Join(dir, fmt.Sprintf("%d.tar", i))
		if err := image.WriteFile(file); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, svc, "image", "import", "--data-dir="+node.DataDir, file).CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", image.Name, err, out)
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

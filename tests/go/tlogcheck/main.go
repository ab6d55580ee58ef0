// Command tlogcheck checks a log that pvdm wrote with Go's own packages for transparency logs.
//
// It reads one JSON question from standard input, prints "ok" and what it counted, and exits with 1 and the reason at the
// first thing that does not hold.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type question struct {
	Vkey        string        `json:"vkey"`
	Folder      string        `json:"folder"`
	Inclusion   []inclusion   `json:"inclusion"`
	Consistency []consistency `json:"consistency"`
}

type inclusion struct {
	Index  int64       `json:"index"`
	Entry  string      `json:"entry"`
	Hashes []tlog.Hash `json:"hashes"`
}

type consistency struct {
	OldNote string      `json:"old_note"`
	Hashes  []tlog.Hash `json:"hashes"`
}

// tiles reads the C2SP layout, which leaves out the height that Go's own paths name.
type tiles struct{ folder string }

func (t tiles) Height() int { return 8 }

func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range wanted {
		data, err := os.ReadFile(filepath.Join(t.folder, path(tile)))
		if errors.Is(err, os.ErrNotExist) && tile.W < 256 {
			data, err = os.ReadFile(filepath.Join(t.folder, path(tlog.Tile{H: 8, L: tile.L, N: tile.N, W: 256})))
			if err == nil && len(data) >= tile.W*tlog.HashSize {
				data = data[:tile.W*tlog.HashSize]
			}
		}
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func path(tile tlog.Tile) string {
	return strings.Replace(strings.Replace(tile.Path(), "tile/8/", "tile/", 1), "tile/data/", "tile/entries/", 1)
}

// ecdsaVerifier is signature type 2 of C2SP signed notes, which Go's package leaves to its callers.
type ecdsaVerifier struct {
	name string
	hash uint32
	key  *ecdsa.PublicKey
}

func (v ecdsaVerifier) Name() string    { return v.name }
func (v ecdsaVerifier) KeyHash() uint32 { return v.hash }
func (v ecdsaVerifier) Verify(message, signature []byte) bool {
	digest := sha256.Sum256(message)
	return ecdsa.VerifyASN1(v.key, digest[:], signature)
}

func newVerifier(vkey string) (note.Verifier, error) {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("verifier key: %d parts", len(parts))
	}
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(raw) == 0 || raw[0] != 2 {
		return note.NewVerifier(vkey)
	}
	parsed, err := x509.ParsePKIXPublicKey(raw[1:])
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("verifier key: %T", parsed)
	}
	id := sha256.Sum256(raw[1:])
	if parts[1] != fmt.Sprintf("%x", id[:4]) {
		return nil, fmt.Errorf("verifier key: id %s, want %x", parts[1], id[:4])
	}
	return ecdsaVerifier{parts[0], binary.BigEndian.Uint32(id[:4]), key}, nil
}

// open verifies a checkpoint's signature with Go's note package and reads origin, size and root.
func open(message []byte, vkey string) (tlog.Tree, error) {
	verifier, err := newVerifier(vkey)
	if err != nil {
		return tlog.Tree{}, err
	}
	opened, err := note.Open(message, note.VerifierList(verifier))
	if err != nil {
		return tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name() {
		return tlog.Tree{}, fmt.Errorf("checkpoint: unexpected text %q", opened.Text)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return tlog.Tree{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: root}, err
}

// entries splits the bundles into records, as many as the tree has.
func entries(folder string, size int64) ([][]byte, error) {
	var found [][]byte
	for n := int64(0); n*256 < size; n++ {
		width := size - n*256
		if width > 256 {
			width = 256
		}
		data, err := os.ReadFile(filepath.Join(folder, path(tlog.Tile{H: 8, L: -1, N: n, W: int(width)})))
		if err != nil {
			return nil, err
		}
		for len(data) > 0 {
			length := int(binary.BigEndian.Uint16(data))
			found = append(found, data[2:2+length])
			data = data[2+length:]
		}
	}
	if int64(len(found)) != size {
		return nil, fmt.Errorf("bundles: %d entries, want %d", len(found), size)
	}
	return found, nil
}

// checkTiles builds the whole tree again from the entries and compares its root and every byte of every tile. Reading
// through TileHashReader alone would not do: with several subtrees in one tile it leaves some tiles unauthenticated.
func checkTiles(folder string, tree tlog.Tree) error {
	records, err := entries(folder, tree.N)
	if err != nil {
		return err
	}
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			found[i] = stored[index]
		}
		return found, nil
	})
	for n, record := range records {
		hashes, err := tlog.StoredHashes(int64(n), record, reader)
		if err != nil {
			return err
		}
		stored = append(stored, hashes...)
	}
	root, err := tlog.TreeHash(tree.N, reader)
	if err != nil {
		return err
	}
	if root != tree.Hash {
		return fmt.Errorf("entries: root %v, want %v", root, tree.Hash)
	}
	for _, tile := range tlog.NewTiles(8, 0, tree.N) {
		want, err := tlog.ReadTileData(tile, reader)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(folder, path(tile)))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s differs", path(tile))
		}
	}
	return nil
}

func checkInclusion(proof inclusion, tree tlog.Tree, reader tlog.HashReader) error {
	if err := tlog.CheckRecord(proof.Hashes, tree.N, tree.Hash, proof.Index, tlog.RecordHash([]byte(proof.Entry))); err != nil {
		return fmt.Errorf("inclusion of %d: %w", proof.Index, err)
	}
	own, err := tlog.ProveRecord(tree.N, proof.Index, reader)
	if err != nil {
		return fmt.Errorf("tiles, inclusion of %d: %w", proof.Index, err)
	}
	return same(own, proof.Hashes)
}

func checkConsistency(proof consistency, vkey string, tree tlog.Tree, reader tlog.HashReader) error {
	old, err := open([]byte(proof.OldNote), vkey)
	if err != nil {
		return err
	}
	if err := tlog.CheckTree(proof.Hashes, tree.N, tree.Hash, old.N, old.Hash); err != nil {
		return fmt.Errorf("consistency with %d: %w", old.N, err)
	}
	own, err := tlog.ProveTree(tree.N, old.N, reader)
	if err != nil {
		return fmt.Errorf("tiles, consistency with %d: %w", old.N, err)
	}
	return same(own, proof.Hashes)
}

func same(own, theirs []tlog.Hash) error {
	if len(own) != len(theirs) {
		return fmt.Errorf("proof: %d hashes, want %d", len(theirs), len(own))
	}
	for i := range own {
		if !bytes.Equal(own[i][:], theirs[i][:]) {
			return fmt.Errorf("proof: hash %d differs", i)
		}
	}
	return nil
}

func check(ask question) (string, error) {
	message, err := os.ReadFile(filepath.Join(ask.Folder, "checkpoint"))
	if err != nil {
		return "", err
	}
	tree, err := open(message, ask.Vkey)
	if err != nil {
		return "", err
	}
	if err := checkTiles(ask.Folder, tree); err != nil {
		return "", err
	}
	reader := tlog.TileHashReader(tree, tiles{ask.Folder})
	for _, proof := range ask.Inclusion {
		if err := checkInclusion(proof, tree, reader); err != nil {
			return "", err
		}
	}
	for _, proof := range ask.Consistency {
		if err := checkConsistency(proof, ask.Vkey, tree, reader); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("ok %d entries %d inclusion %d consistency", tree.N, len(ask.Inclusion), len(ask.Consistency)), nil
}

func main() {
	var ask question
	err := json.NewDecoder(os.Stdin).Decode(&ask)
	if err == nil {
		var answer string
		if answer, err = check(ask); err == nil {
			fmt.Println(answer)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

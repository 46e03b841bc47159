// Tokens on a grid of letters, as widgets/token_text.py lays them out for the PNG.

// Every token's pieces: {token, row, column, string}. A token that fits into a row stays whole; a newline is drawn as ↵,
// in one letter's room beyond the last column if need be, and ends its row.
export function textPieces(texts, columns) {
  const pieces = [];
  let [row, column] = [0, 0];
  texts.forEach((string, token) => {
    const first = Array.from(string.split("\n")[0]).length;
    if (column + first > columns && first <= columns) [row, column] = [row + 1, 0];
    let piece = null;
    for (const letter of string) {
      if (column >= columns && letter !== "\n") [row, column, piece] = [row + 1, 0, null];
      if (!piece) pieces.push((piece = { token, row, column, string: "" }));
      piece.string += letter === "\n" ? "↵" : /\s|\p{C}/u.test(letter) ? " " : letter;
      column += 1;
      if (letter === "\n") [row, column, piece] = [row + 1, 0, null];
    }
  });
  return pieces;
}

// Letters in a row of this width, with room for a ↵ at its end.
export const textColumns = (width, measure) => Math.floor(width / measure("0", "m")) - 1;

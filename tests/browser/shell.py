"""What a person reads off a playground's shell."""


def sentence(page):
    """The state sentence."""
    return page.locator(".nl-state").inner_text()


def outside_the_shell(page):
    """The beginnings of the elements that leave the shell at its left or right."""
    return page.evaluate("""() => {
        const box = document.querySelector('.nl-shell').getBoundingClientRect();
        return [...document.querySelectorAll('.nl-shell *')].filter((element) => {
            const own = element.getBoundingClientRect();
            return own.width && (own.left < box.left - 1 || own.right > box.right + 1);
        }).map((element) => element.outerHTML.slice(0, 80));
    }""")
